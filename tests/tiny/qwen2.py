"""Tiny Qwen 2s, with windows of five tokens from a layer on and without."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively


def make(task: str = "ForCausalLM", **changes: Any) -> nn.Module:
    """A tiny Qwen 2."""
    import transformers

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "intermediate_size": 88,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 64,
        **changes,
    }
    return lively(getattr(transformers, "Qwen2" + task)(transformers.Qwen2Config(**config)))


DECODER = Tiny(
    family="qwen2",
    make=make,
    configs={
        "full": {},
        "windows_from_the_second_layer": {
            "use_sliding_window": True,
            "sliding_window": 5,
            "max_window_layers": 1,
            "tie_word_embeddings": True,
            "rms_norm_eps": 1e-3,
        },
        "windows_by_layer": {
            "use_sliding_window": True,
            "sliding_window": 4,
            "layer_types": ["full_attention", "sliding_attention", "full_attention"],
            "num_key_value_heads": 4,
        },
        "yarn": {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 100.0,
                "factor": 4.0,
                "original_max_position_embeddings": 64,
                "beta_fast": 4.0,
                "beta_slow": 1.0,
            },
            "max_position_embeddings": 256,
        },
    },
)

TASKS = Tiny(
    family="qwen2",
    make=make,
    kind="encoder",
    configs={
        "classes": {"task": "ForSequenceClassification", "num_labels": 3, "pad_token_id": 0},
    },
)

TINY = (DECODER, TASKS)
