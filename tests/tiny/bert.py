"""Tiny BERTs: with every head there is, and one that writes text."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively


def make(head: str = "Model", pool: bool = True, **changes: Any) -> nn.Module:
    """A tiny BERT with the head of a task."""
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
    made = getattr(transformers, f"Bert{head}")
    how = {} if pool else {"add_pooling_layer": False}
    return lively(made(transformers.BertConfig(**config), **how))


TINY = (
    Tiny(
        family="bert",
        make=make,
        kind="encoder",
        configs={
            "masked": {"head": "ForMaskedLM"},
            "pretraining": {"head": "ForPreTraining", "hidden_act": "gelu_new", "layer_norm_eps": 1e-3},
            "pooled": {"type_vocab_size": 3, "hidden_act": "relu"},
            "unpooled": {"pool": False},
            "next": {"head": "ForNextSentencePrediction"},
            "classes": {"head": "ForSequenceClassification", "num_labels": 5, "classifier_dropout": 0.3},
            "tags": {"head": "ForTokenClassification", "num_labels": 7},
            "answers": {"head": "ForQuestionAnswering"},
        },
    ),
    Tiny(
        family="bert",
        make=make,
        configs={"writes": {"head": "LMHeadModel", "is_decoder": True, "bos_token_id": 0, "eos_token_id": 1}},
    ),
)
