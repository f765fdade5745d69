"""Tiny Mistrals, with windows of five tokens and without."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively


def make(task: str = "ForCausalLM", **changes: Any) -> nn.Module:
    """A tiny Mistral."""
    import transformers

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "intermediate_size": 88,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "sliding_window": 5,
        "max_position_embeddings": 64,
        **changes,
    }
    return lively(getattr(transformers, "Mistral" + task)(transformers.MistralConfig(**config)))


DECODER = Tiny(
    family="mistral",
    make=make,
    configs={
        "window": {},
        "no_window": {"sliding_window": None, "head_dim": 24, "rms_norm_eps": 1e-3},
        "tied": {"hidden_act": "gelu", "tie_word_embeddings": True, "num_key_value_heads": 1, "rope_theta": 500.0},
    },
)

TASKS = Tiny(
    family="mistral",
    make=make,
    kind="encoder",
    configs={
        "classes": {"task": "ForSequenceClassification", "num_labels": 3, "pad_token_id": 0},
        "tags": {"task": "ForTokenClassification"},
        "answers": {"task": "ForQuestionAnswering"},
    },
)

TINY = (DECODER, TASKS)
