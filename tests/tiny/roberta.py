"""Tiny RoBERTas, whose positions are counted from the padding id on."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively
from tests.tiny.bert import KEY_BIAS

EXEMPT = {**KEY_BIAS, "*.embed.positions.offset": "positions are counted from the padding id on"}


def make(head: str = "ForMaskedLM", **changes: Any) -> nn.Module:
    """A tiny RoBERTa with the head of a task."""
    import transformers

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 88,
        "max_position_embeddings": 42,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
        **changes,
    }
    return lively(getattr(transformers, f"Roberta{head}")(transformers.RobertaConfig(**config)))


TINY = (
    Tiny(
        family="roberta",
        make=make,
        kind="encoder",
        exempt=EXEMPT,
        configs={
            "masked": {},
            "pooled": {"head": "Model", "pad_token_id": 2, "type_vocab_size": 2, "hidden_act": "relu"},
            "classes": {
                "head": "ForSequenceClassification",
                "num_labels": 3,
                "classifier_dropout": 0.2,
                "hidden_act": "relu",
            },
            "tags": {"head": "ForTokenClassification", "num_labels": 5},
            "answers": {"head": "ForQuestionAnswering"},
        },
    ),
    Tiny(family="roberta", make=make, exempt=EXEMPT, configs={"writes": {"head": "ForCausalLM", "is_decoder": True}}),
)
