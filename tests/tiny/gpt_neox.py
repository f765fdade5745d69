"""Tiny GPT-NeoXs: parallel and not, with more or less of each head rotated."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively


def make(task: str = "ForCausalLM", **changes: Any) -> nn.Module:
    """A tiny GPT-NeoX."""
    import transformers

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "intermediate_size": 112,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        **changes,
    }
    return lively(getattr(transformers, "GPTNeoX" + task)(transformers.GPTNeoXConfig(**config)))


DECODER = Tiny(
    family="gpt_neox",
    make=make,
    configs={
        "parallel": {},
        "one_after_the_other": {
            "use_parallel_residual": False,
            "attention_bias": False,
            "tie_word_embeddings": True,
            "layer_norm_eps": 1e-3,
            "hidden_act": "relu",
            "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 1.0},
        },
        "scaled": {
            "rope_parameters": {
                "rope_type": "linear",
                "factor": 3.0,
                "rope_theta": 500.0,
                "partial_rotary_factor": 0.5,
            },
        },
    },
)

TASKS = Tiny(
    family="gpt_neox",
    make=make,
    kind="encoder",
    configs={
        "tags": {"task": "ForTokenClassification", "num_labels": 3},
        "classes": {"task": "ForSequenceClassification", "num_labels": 3, "pad_token_id": 0},
        "answers": {"task": "ForQuestionAnswering"},
    },
)

TINY = (DECODER, TASKS)
