"""Tiny gpt-osses: windows of five tokens on every other layer, and a gate that clamps."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively

YARN = {
    "rope_type": "yarn",
    "rope_theta": 150000.0,
    "factor": 8.0,
    "original_max_position_embeddings": 512,
    "truncate": False,
}
"""Between the waves that are kept and those that are stretched lie some that matter within 20 tokens."""


def make(**changes: Any) -> nn.Module:
    """A tiny gpt-oss."""
    from transformers import GptOssConfig, GptOssForCausalLM

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 24,
        "num_local_experts": 6,
        "num_experts_per_tok": 3,
        "sliding_window": 5,
        "swiglu_limit": 0.9,
        "max_position_embeddings": 4096,
        "rope_parameters": YARN,
        **changes,
    }
    return lively(GptOssForCausalLM(GptOssConfig(**config)))


TINY = Tiny(
    family="gpt_oss",
    make=make,
    configs={
        "alternating": {},
        "other_layers_unbiased": {
            "num_hidden_layers": 3,
            "layer_types": ["full_attention", "full_attention", "sliding_attention"],
            "attention_bias": False,
            "swiglu_alpha": 1.1,
            "swiglu_limit": 2.0,
            "num_experts_per_tok": 1,
            "tie_word_embeddings": True,
            "rope_parameters": {**YARN, "truncate": True, "beta_fast": 16.0},
        },
    },
)
