"""Tiny CLIPs. Token 98 ends a text; with the old end id, 2, the highest id does."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.tiny import Tiny, lively
from tests.tiny.vit import loud

TEXT = {
    "vocab_size": 99,
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 88,
    "max_position_embeddings": 24,
    "bos_token_id": 0,
    "eos_token_id": 98,
    "pad_token_id": 1,
}
VISION = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 72,
    "image_size": 32,
    "patch_size": 8,
}


def clip(text: dict[str, Any] | None = None, vision: dict[str, Any] | None = None, **changes: Any) -> nn.Module:
    """A tiny pair of towers; `text` and `vision` are changes to the config of each."""
    from transformers import CLIPConfig, CLIPModel

    towers = {"text_config": {**TEXT, **(text or {})}, "vision_config": {**VISION, **(vision or {})}}
    model = loud(lively(CLIPModel(CLIPConfig(**{"projection_dim": 16, **changes, **towers}))))
    torch.nn.init.constant_(model.logit_scale, 2.5)
    return model


TINY = Tiny(
    family="clip",
    kind="towers",
    normed_last=False,
    exempt={
        "image.*.positions.offset": "a grid of patches begins at its own first row",
        "*.op.bias.k": "a bias of keys adds the same to all scores of a query",
    },
    make=clip,
    configs={
        "two_towers": {},
        "old_end": {
            "text": {"eos_token_id": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-2},
            "vision": {"hidden_act": "gelu", "patch_size": 16, "layer_norm_eps": 1e-2},
            "projection_dim": 20,
        },
    },
)
