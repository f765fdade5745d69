"""Tiny ESMs: ESM-2, with rotary positions and masked residues as zeros, and one like ESM-1b."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively
from tests.tiny.roberta import EXEMPT


def make(head: str = "ForMaskedLM", **changes: Any) -> nn.Module:
    """A tiny ESM with the head of a task."""
    import transformers

    config = {
        "vocab_size": 33,
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "intermediate_size": 88,
        "max_position_embeddings": 40,
        "pad_token_id": 1,
        "mask_token_id": 32,
        "layer_norm_eps": 1e-5,
        "position_embedding_type": "rotary",
        "token_dropout": True,
        "emb_layer_norm_before": False,
        **changes,
    }
    return lively(getattr(transformers, f"Esm{head}")(transformers.EsmConfig(**config)))


ESM_1B = {"position_embedding_type": "absolute", "emb_layer_norm_before": True}

CONTACTS = {"heads.contacts": "reads attention patterns, which no output does: see test_contacts.py"}

TINY = (
    Tiny(
        family="esm",
        make=make,
        kind="encoder",
        exempt=CONTACTS,
        configs={
            "masked": {},
            "pooled": {"head": "Model", "rope_theta": 300.0},
            "classes": {"head": "ForSequenceClassification", "num_labels": 3},
            "tags": {"head": "ForTokenClassification", "num_labels": 5},
        },
    ),
    Tiny(
        family="esm",
        make=make,
        kind="encoder",
        exempt={**EXEMPT, **CONTACTS},
        configs={
            "absolute": {**ESM_1B, "token_dropout": False},
            "absolute_dropped": {**ESM_1B, "pad_token_id": 2},
        },
    ),
)
