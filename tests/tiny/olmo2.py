"""Tiny OLMo 2s."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively


def make(**changes: Any) -> nn.Module:
    """A tiny OLMo 2."""
    from transformers import Olmo2Config, Olmo2ForCausalLM

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
    return lively(Olmo2ForCausalLM(Olmo2Config(**config)))


TINY = Tiny(
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
