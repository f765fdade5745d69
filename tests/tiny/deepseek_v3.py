"""Tiny DeepSeek-V3s: one dense layer, then experts in groups."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.tiny import Tiny, lively


def make(**changes: Any) -> nn.Module:
    """A tiny DeepSeek-V3. The correction is a buffer there, and drawn so that it changes what is chosen."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "intermediate_size": 88,
        "moe_intermediate_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "n_routed_experts": 8,
        "n_shared_experts": 2,
        "num_experts_per_tok": 3,
        "n_group": 4,
        "topk_group": 2,
        "first_k_dense_replace": 1,
        "q_lora_rank": 24,
        "kv_lora_rank": 32,
        "qk_nope_head_dim": 16,
        "qk_rope_head_dim": 8,
        "v_head_dim": 12,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,
        **changes,
    }
    model = lively(DeepseekV3ForCausalLM(DeepseekV3Config(**config)))
    generator = torch.Generator().manual_seed(5)
    for name, buffer in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            buffer.copy_(0.3 * torch.randn(buffer.shape, generator=generator))
    return model


TINY = Tiny(
    family="deepseek_v3",
    make=make,
    configs={
        "latent": {},
        "whole_queries": {
            "q_lora_rank": None,
            "rope_interleave": False,
            "attention_bias": True,
            "norm_topk_prob": False,
            "n_group": 1,
            "topk_group": 1,
            "first_k_dense_replace": 0,
            "v_head_dim": 32,
            "tie_word_embeddings": True,
        },
        "yarn": {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10.0,
                "factor": 8.0,
                "original_max_position_embeddings": 24,
                "beta_fast": 2.0,
                "beta_slow": 1.0,
                "mscale": 1.0,
                "mscale_all_dim": 0.7,
            },
            "routed_scaling_factor": 1.5,
            "hidden_act": "gelu",
        },
    },
)
