"""Tiny Qwen 3s: heads wider than the stream, with windows and without."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively


def make(task: str = "ForCausalLM", **changes: Any) -> nn.Module:
    """A tiny Qwen 3."""
    import transformers

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "intermediate_size": 88,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 24,
        "max_position_embeddings": 64,
        **changes,
    }
    return lively(getattr(transformers, "Qwen3" + task)(transformers.Qwen3Config(**config)))


DECODER = Tiny(
    family="qwen3",
    make=make,
    configs={
        "wide_heads": {},
        "windows_biased_tied": {
            "use_sliding_window": True,
            "sliding_window": 5,
            "max_window_layers": 1,
            "attention_bias": True,
            "tie_word_embeddings": True,
            "rms_norm_eps": 1e-3,
        },
    },
)

TASKS = Tiny(
    family="qwen3",
    make=make,
    kind="encoder",
    configs={
        "answers": {"task": "ForQuestionAnswering"},
        "tags": {"task": "ForTokenClassification"},
    },
)

TINY = (DECODER, TASKS)
