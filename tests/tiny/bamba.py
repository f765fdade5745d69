"""Tiny Bambas."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny
from tests.tiny.mamba import steady


def make(**changes: Any) -> nn.Module:
    """A tiny Bamba with attention in its second layer."""
    from transformers import BambaConfig, BambaForCausalLM

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "intermediate_size": 88,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "attn_layer_indices": [1],
        "mamba_n_heads": 8,
        "mamba_d_state": 8,
        "mamba_chunk_size": 8,
        **changes,
    }
    return steady(BambaForCausalLM(BambaConfig(**config)))


TINY = Tiny(
    family="bamba",
    make=make,
    configs={
        "hybrid": {},
        "limited_groups_biased": {
            "mamba_n_groups": 2,
            "time_step_limit": (0.4, 0.9),
            "mamba_proj_bias": True,
            "mamba_conv_bias": False,
            "attention_bias": True,
            "mlp_bias": True,
            "tie_word_embeddings": True,
            "hidden_act": "gelu",
            "rms_norm_eps": 1e-3,
            "attn_layer_indices": [0, 2],
        },
    },
)
