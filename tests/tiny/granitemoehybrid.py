"""Tiny Granite hybrids."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny
from tests.tiny.mamba import steady


def make(**changes: Any) -> nn.Module:
    """A tiny Granite hybrid with attention in its second layer, and all multipliers off one."""
    from transformers import GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "intermediate_size": 48,
        "shared_intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "num_local_experts": 4,
        "mamba_n_heads": 8,
        "mamba_d_state": 8,
        "mamba_chunk_size": 8,
        "embedding_multiplier": 2.0,
        "residual_multiplier": 0.4,
        "attention_multiplier": 0.4,
        "logits_scaling": 0.5,
        **changes,
    }
    return steady(GraniteMoeHybridForCausalLM(GraniteMoeHybridConfig(**config)))


TINY = Tiny(
    family="granitemoehybrid",
    make=make,
    configs={
        "experts": {},
        "dense_rotated": {
            "num_local_experts": 0,
            "position_embedding_type": "rope",
            "tie_word_embeddings": True,
            "attention_bias": True,
            "mamba_n_groups": 2,
            "time_step_limit": (0.4, 0.9),
            "mamba_proj_bias": True,
            "hidden_act": "gelu",
            "rms_norm_eps": 1e-3,
        },
        "attention_first": {
            "layer_types": ["full_attention", "linear_attention"],
            "num_hidden_layers": 2,
            "num_experts_per_tok": 3,
            "position_embedding_type": "rope",
            "mamba_conv_bias": False,
            "mamba_d_conv": 3,
        },
    },
)
