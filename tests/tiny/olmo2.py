"""Tiny OLMo 2s."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively


def make(task: str = "ForCausalLM", **changes: Any) -> nn.Module:
    """A tiny OLMo 2."""
    import transformers

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "intermediate_size": 88,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "eos_token_id": 2,
        "max_position_embeddings": 64,
        **changes,
    }
    return lively(getattr(transformers, "Olmo2" + task)(transformers.Olmo2Config(**config)))


DECODER = Tiny(
    family="olmo2",
    make=make,
    configs={
        "grouped": {},
        "biased_tied": {
            "attention_bias": True,
            "tie_word_embeddings": True,
            "rms_norm_eps": 1e-2,
            "num_key_value_heads": 4,
            "rope_theta": 500000.0,
        },
    },
)

TASKS = Tiny(
    family="olmo2",
    make=make,
    kind="encoder",
    configs={
        "classes": {"task": "ForSequenceClassification", "num_labels": 3, "pad_token_id": 0},
    },
)

TINY = (DECODER, TASKS)
