"""Tiny ALBERTs, whose layers share weights in one group or several."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively
from tests.tiny.bert import KEY_BIAS


def make(head: str = "ForMaskedLM", **changes: Any) -> nn.Module:
    """A tiny ALBERT with the head of a task."""
    import transformers

    config = {
        "vocab_size": 99,
        "embedding_size": 48,
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 88,
        "max_position_embeddings": 40,
        **changes,
    }
    return lively(getattr(transformers, f"Albert{head}")(transformers.AlbertConfig(**config)))


TINY = Tiny(
    family="albert",
    make=make,
    kind="encoder",
    exempt=KEY_BIAS,
    configs={
        "masked": {},
        "groups": {"num_hidden_layers": 5, "num_hidden_groups": 2, "inner_group_num": 2, "hidden_act": "gelu"},
        "unshared": {"num_hidden_groups": 3, "embedding_size": 64, "head": "Model"},
        "pretraining": {"head": "ForPreTraining", "classifier_dropout_prob": 0.3},
        "classes": {"head": "ForSequenceClassification", "num_labels": 3, "hidden_act": "relu"},
        "tags": {"head": "ForTokenClassification", "num_labels": 5, "hidden_act": "silu"},
        "answers": {"head": "ForQuestionAnswering"},
    },
)
