"""Tiny Mamba-2s."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny
from tests.tiny.mamba import steady


def make(**changes: Any) -> nn.Module:
    """A tiny Mamba-2 with its heads in two groups."""
    from transformers import Mamba2Config, Mamba2ForCausalLM

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "state_size": 8,
        "num_hidden_layers": 3,
        "num_heads": 8,
        "head_dim": 16,
        "n_groups": 2,
        "chunk_size": 8,
        **changes,
    }
    return steady(Mamba2ForCausalLM(Mamba2Config(**config)))


TINY = Tiny(
    family="mamba2",
    make=make,
    embed_first=False,
    configs={
        "groups": {},
        "limited_one_group": {
            "time_step_limit": (0.4, 0.9),
            "n_groups": 1,
            "use_bias": True,
            "tie_word_embeddings": True,
            "layer_norm_epsilon": 1e-3,
        },
        "every_head_a_group": {"n_groups": 8, "use_conv_bias": False, "conv_kernel": 3, "hidden_act": "gelu"},
    },
)
