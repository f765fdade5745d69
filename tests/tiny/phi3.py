"""Tiny Phi-3s: fused matrices, a part of each head rotated, LongRoPE on either side of its trained length."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively

FACTORS = {"short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5], "long_factor": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]}


def make(task: str = "ForCausalLM", **changes: Any) -> nn.Module:
    """A tiny Phi-3."""
    import transformers

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "intermediate_size": 88,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "original_max_position_embeddings": 64,
        "pad_token_id": 0,
        "eos_token_id": 2,
        "max_position_embeddings": 64,
        **changes,
    }
    return lively(getattr(transformers, "Phi3" + task)(transformers.Phi3Config(**config)))


DECODER = Tiny(
    family="phi3",
    make=make,
    configs={
        "plain": {},
        "longrope": {
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10000.0,
                **FACTORS,
                "partial_rotary_factor": 0.75,
            },
            "original_max_position_embeddings": 12,
            "num_key_value_heads": 4,
        },
        "short": {
            "rope_parameters": {"rope_type": "longrope", "rope_theta": 500.0, **FACTORS, "partial_rotary_factor": 0.75},
            "original_max_position_embeddings": 32,
        },
        "window_tied": {"sliding_window": 5, "tie_word_embeddings": True, "hidden_act": "gelu", "rms_norm_eps": 1e-3},
    },
)

TASKS = Tiny(
    family="phi3",
    make=make,
    kind="encoder",
    configs={
        "tags": {"task": "ForTokenClassification"},
    },
)

TINY = (DECODER, TASKS)
