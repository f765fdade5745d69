"""Tiny Mambas."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.tiny import Tiny, lively


def steady(model: nn.Module) -> nn.Module:
    """With most of a channel's input passed on beside the scan, as where training starts: D around 1.

    Around 0, what is left is small and the norms behind it blow up its rounding.
    """
    with torch.no_grad():
        for name, parameter in lively(model).named_parameters():
            if name.endswith(".D"):
                parameter += 1.0
    return model


def make(**changes: Any) -> nn.Module:
    """A tiny Mamba."""
    from transformers import MambaConfig, MambaForCausalLM

    config = {"vocab_size": 99, "hidden_size": 64, "state_size": 8, "num_hidden_layers": 3, **changes}
    return steady(MambaForCausalLM(MambaConfig(**config)))


TINY = Tiny(
    family="mamba",
    make=make,
    embed_first=False,
    configs={
        "plain": {},
        "odd_widths": {
            "use_bias": True,
            "use_conv_bias": False,
            "conv_kernel": 3,
            "time_step_rank": 7,
            "expand": 3,
            "hidden_act": "gelu",
            "tie_word_embeddings": False,
            "layer_norm_epsilon": 1e-3,
        },
        "conv_of_one": {"conv_kernel": 1, "state_size": 3, "num_hidden_layers": 2},
    },
)
