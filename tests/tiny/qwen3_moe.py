"""Tiny Qwen 3s with experts: in all layers, and in some."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively


def make(**changes: Any) -> nn.Module:
    """A tiny Qwen 3 with experts."""
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "intermediate_size": 88,
        "moe_intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "norm_topk_prob": True,
        "head_dim": 24,
        "max_position_embeddings": 64,
        **changes,
    }
    return lively(Qwen3MoeForCausalLM(Qwen3MoeConfig(**config)))


TINY = Tiny(
    family="qwen3_moe",
    make=make,
    configs={
        "experts_everywhere": {},
        "some_layers_plain": {
            "num_hidden_layers": 5,
            "mlp_only_layers": [3],
            "decoder_sparse_step": 2,
            "norm_topk_prob": False,
            "num_experts": 6,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": 5,
        },
    },
)
