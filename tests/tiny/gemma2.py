"""Tiny Gemma 2s with windows of five tokens."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively


def make(task: str = "ForCausalLM", **changes: Any) -> nn.Module:
    """A tiny Gemma 2."""
    import transformers

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "intermediate_size": 88,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 24,
        "sliding_window": 5,
        "max_position_embeddings": 64,
        **changes,
    }
    return lively(getattr(transformers, "Gemma2" + task)(transformers.Gemma2Config(**config)))


DECODER = Tiny(
    family="gemma2",
    make=make,
    configs={
        "turns": {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0},
        "other_layers": {
            "layer_types": ["full_attention", "full_attention", "sliding_attention", "sliding_attention"],
            "query_pre_attn_scalar": 40,
            "attention_bias": True,
            "tie_word_embeddings": False,
            "hidden_activation": "silu",
            "rms_norm_eps": 1e-3,
        },
        "query_of_its_head": {"query_pre_attn_scalar": 24, "sliding_window": 3},
        "uncapped": {"attn_logit_softcapping": None, "final_logit_softcapping": None, "num_key_value_heads": 4},
    },
)

TASKS = Tiny(
    family="gemma2",
    make=make,
    kind="encoder",
    configs={
        "classes": {"task": "ForSequenceClassification", "num_labels": 3, "pad_token_id": 0},
    },
)

TINY = (DECODER, TASKS)
