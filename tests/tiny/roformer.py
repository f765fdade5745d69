"""Tiny RoFormers; their table of positions is computed, and is what it is."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.tiny import Tiny, lively


def make(head: str = "ForMaskedLM", **changes: Any) -> nn.Module:
    """A tiny RoFormer with the head of a task."""
    import transformers

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 88,
        "max_position_embeddings": 40,
        **changes,
    }
    model = lively(getattr(transformers, f"RoFormer{head}")(transformers.RoFormerConfig(**config)))
    table = getattr(model, "roformer", model).encoder.embed_positions
    with torch.no_grad():
        table.weight.copy_(table.create_weight())
    return model


TINY = (
    Tiny(
        family="roformer",
        make=make,
        kind="encoder",
        configs={
            "masked": {},
            "values_narrow": {"rotary_value": True, "embedding_size": 48, "hidden_act": "gelu_new"},
            "bare": {"head": "Model", "layer_norm_eps": 1e-3},
            "classes": {"head": "ForSequenceClassification", "num_labels": 3},
            "tags": {"head": "ForTokenClassification", "num_labels": 5},
            "answers": {"head": "ForQuestionAnswering"},
        },
    ),
    Tiny(family="roformer", make=make, configs={"writes": {"head": "ForCausalLM", "is_decoder": True}}),
)
