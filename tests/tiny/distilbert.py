"""Tiny DistilBERTs."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively
from tests.tiny.bert import KEY_BIAS


def make(head: str = "ForMaskedLM", **changes: Any) -> nn.Module:
    """A tiny DistilBERT with the head of a task."""
    import transformers

    config = {
        "vocab_size": 99,
        "dim": 64,
        "n_layers": 3,
        "n_heads": 4,
        "hidden_dim": 88,
        "max_position_embeddings": 40,
        **changes,
    }
    return lively(getattr(transformers, f"DistilBert{head}")(transformers.DistilBertConfig(**config)))


TINY = Tiny(
    family="distilbert",
    make=make,
    kind="encoder",
    exempt=KEY_BIAS,
    configs={
        "masked": {},
        "bare": {"head": "Model", "activation": "relu", "sinusoidal_pos_embds": True},
        "classes": {"head": "ForSequenceClassification", "num_labels": 3, "seq_classif_dropout": 0.4},
        "tags": {"head": "ForTokenClassification", "num_labels": 5},
        "answers": {"head": "ForQuestionAnswering", "qa_dropout": 0.3},
    },
)
