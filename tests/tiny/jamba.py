"""Tiny Jambas."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny
from tests.tiny.mamba import steady


def make(**changes: Any) -> nn.Module:
    """A tiny Jamba with attention and experts in its second layer."""
    from transformers import JambaConfig, JambaForCausalLM

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "intermediate_size": 88,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "num_experts": 4,
        "attn_layer_period": 4,
        "attn_layer_offset": 1,
        "mamba_d_state": 8,
        **changes,
    }
    return steady(JambaForCausalLM(JambaConfig(**config)))


TINY = Tiny(
    family="jamba",
    make=make,
    configs={
        "hybrid": {},
        "odd": {
            "num_experts": 5,
            "num_experts_per_tok": 3,
            "expert_layer_period": 3,
            "expert_layer_offset": 0,
            "attn_layer_period": 2,
            "attn_layer_offset": 0,
            "mamba_proj_bias": True,
            "mamba_conv_bias": False,
            "mamba_d_conv": 3,
            "mamba_dt_rank": 6,
            "hidden_act": "gelu",
            "rms_norm_eps": 1e-3,
            "tie_word_embeddings": True,
        },
        "dense": {"num_experts": 1, "num_experts_per_tok": 1, "attn_layer_offset": 2},
    },
)
