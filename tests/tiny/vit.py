"""Tiny ViTs: pictures of 32 x 32 in squares of 8."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.tiny import Tiny, lively

SIZES = {
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 88,
    "image_size": 32,
    "patch_size": 8,
    "num_labels": 5,
}

# What can't show in any of them.
EXEMPT = {
    "*.positions.offset": "a grid of patches begins at its own first row",
    "*.op.bias.k": "a bias of keys adds the same to all scores of a query",
}


def loud(model: nn.Module) -> nn.Module:
    """Feed-forwards that weigh more than the rest, so that one GELU taken for another shows."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("fc1.weight", "fc2.weight")):
                parameter.mul_(1.5 if "fc1" in name else 2.0)
    return model


def classifier(**changes: Any) -> nn.Module:
    """A tiny image classifier."""
    from transformers import ViTConfig, ViTForImageClassification

    return loud(lively(ViTForImageClassification(ViTConfig(**{**SIZES, **changes}))))


def bare(**changes: Any) -> nn.Module:
    """Without labels, with the pooler."""
    from transformers import ViTConfig, ViTModel

    return loud(lively(ViTModel(ViTConfig(**{**SIZES, **changes}))))


CLASSIFIER = Tiny(
    family="vit",
    kind="vision",
    normed_last=False,
    exempt=EXEMPT,
    make=classifier,
    configs={
        "classifier": {},
        "grey_without_bias": {
            "image_size": [24, 24],
            "qkv_bias": False,
            "num_channels": 1,
            "hidden_act": "gelu_pytorch_tanh",
            "layer_norm_eps": 1e-2,
        },
    },
)
BARE = Tiny(
    family="vit",
    kind="vision",
    normed_last=False,
    exempt=EXEMPT,
    make=bare,
    configs={"pooled": {}, "pooled_narrow": {"pooler_output_size": 24, "pooler_act": "relu", "qkv_bias": False}},
)
TINY = (CLASSIFIER, BARE)
