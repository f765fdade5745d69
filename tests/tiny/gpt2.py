"""Tiny GPT-2s."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively


def make(task: str = "GPT2LMHeadModel", **changes: Any) -> nn.Module:
    """A tiny GPT-2."""
    import transformers

    config = {"vocab_size": 99, "n_embd": 64, "n_head": 4, "n_layer": 3, "n_positions": 40, **changes}
    ids = {"bos_token_id": 0, "eos_token_id": 0}
    return lively(getattr(transformers, task)(transformers.GPT2Config(**{**ids, **config})))


DECODER = Tiny(
    family="gpt2",
    make=make,
    configs={
        "plain": {},
        "by_layer": {"scale_attn_by_inverse_layer_idx": True, "n_inner": 88, "activation_function": "gelu"},
        "unscaled_untied": {"scale_attn_weights": False, "tie_word_embeddings": False, "layer_norm_epsilon": 1e-3},
        "relu_odd_widths": {"n_embd": 60, "n_head": 3, "activation_function": "relu", "vocab_size": 101},
    },
)

TASKS = Tiny(
    family="gpt2",
    make=make,
    kind="encoder",
    configs={
        "tags": {"task": "GPT2ForTokenClassification", "num_labels": 3},
        "classes": {"task": "GPT2ForSequenceClassification", "pad_token_id": 0},
        "answers": {"task": "GPT2ForQuestionAnswering"},
    },
)

TINY = (DECODER, TASKS)
