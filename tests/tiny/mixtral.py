"""Tiny Mixtrals: four experts of which two are chosen, and other counts."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively


def make(**changes: Any) -> nn.Module:
    """A tiny Mixtral."""
    from transformers import MixtralConfig, MixtralForCausalLM

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_local_experts": 4,
        "max_position_embeddings": 64,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        **changes,
    }
    return lively(MixtralForCausalLM(MixtralConfig(**config)))


TINY = Tiny(
    family="mixtral",
    make=make,
    configs={
        "two_of_four": {},
        "three_of_seven_windows": {
            "num_local_experts": 7,
            "num_experts_per_tok": 3,
            "sliding_window": 5,
            "head_dim": 24,
            "hidden_act": "gelu",
            "tie_word_embeddings": True,
            "router_aux_loss_coef": 0.02,
        },
    },
)
