"""Tiny Granites, with multipliers that show."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively


def make(task: str = "ForCausalLM", **changes: Any) -> nn.Module:
    """A tiny Granite."""
    import transformers

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "intermediate_size": 88,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "embedding_multiplier": 3.0,
        "residual_multiplier": 0.5,
        "attention_multiplier": 0.2,
        "logits_scaling": 1.5,
        "max_position_embeddings": 64,
        **changes,
    }
    return lively(getattr(transformers, "Granite" + task)(transformers.GraniteConfig(**config)))


DECODER = Tiny(
    family="granite",
    make=make,
    configs={
        "multiplied": {},
        "biased_tied": {
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
            "logits_scaling": 0.5,
            "rms_norm_eps": 1e-2,
        },
    },
)

TASKS = Tiny(
    family="granite",
    make=make,
    kind="encoder",
    configs={
        "headless": {"task": "Model"},
    },
)

TINY = (DECODER, TASKS)
