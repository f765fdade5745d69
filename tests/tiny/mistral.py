"""Tiny Mistrals, with windows of five tokens and without."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively


def make(**changes: Any) -> nn.Module:
    """A tiny Mistral."""
    from transformers import MistralConfig, MistralForCausalLM

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "intermediate_size": 88,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "sliding_window": 5,
        "max_position_embeddings": 64,
        **changes,
    }
    return lively(MistralForCausalLM(MistralConfig(**config)))


TINY = Tiny(
    family="mistral",
    make=make,
    configs={
        "window": {},
        "no_window": {"sliding_window": None, "head_dim": 24, "hidden_act": "gelu", "rms_norm_eps": 1e-3},
        "tied": {"tie_word_embeddings": True, "num_key_value_heads": 1, "rope_theta": 500.0},
    },
)
