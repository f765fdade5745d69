"""Tiny Gemma 3s with windows of five tokens."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively


def make(task: str = "Gemma3ForCausalLM", **changes: Any) -> nn.Module:
    """A tiny Gemma 3 of the text kind."""
    import transformers

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "intermediate_size": 88,
        "num_hidden_layers": 7,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 24,
        "sliding_window": 5,
        "max_position_embeddings": 64,
        **changes,
    }
    return lively(getattr(transformers, task)(transformers.Gemma3TextConfig(**config)))


TINY = (
    Tiny(
        family="gemma3_text",
        make=make,
        configs={
            "five_to_one": {},
            "other_layers": {
                "layer_types": ["full_attention", "sliding_attention", "full_attention"],
                "num_hidden_layers": 3,
                "query_pre_attn_scalar": 10,
                "attention_bias": True,
            },
            "capped_untied": {
                "final_logit_softcapping": 2.0,
                "tie_word_embeddings": False,
                "num_key_value_heads": 4,
            },
            "scaled": {
                "rope_parameters": {
                    "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
                }
            },
            "window_of_one": {"sliding_window": 1, "num_hidden_layers": 2},
        },
    ),
    Tiny(
        family="gemma3_text",
        make=make,
        kind="encoder",
        configs={
            "both_ways": {"use_bidirectional_attention": True, "sliding_window": 6},
            "classes": {"task": "Gemma3TextForSequenceClassification", "num_labels": 4},
        },
    ),
)
