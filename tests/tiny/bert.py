"""Tiny BERTs: with every head there is, and one that writes text."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively

KEY_BIAS = {"*.mixer.op.bias.k": "adds the same to every score of a query, which the softmax takes off again"}


def make(head: str = "Model", seed: int = 0, **changes: Any) -> nn.Module:
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
    return lively(getattr(transformers, f"Bert{head}")(transformers.BertConfig(**config)), seed)


TINY = (
    Tiny(
        family="bert",
        make=make,
        kind="encoder",
        exempt=KEY_BIAS,
        configs={
            "masked": {"head": "ForMaskedLM"},
            "pretraining": {"head": "ForPreTraining", "hidden_act": "gelu_new", "layer_norm_eps": 1e-3},
            "pooled": {"type_vocab_size": 3, "hidden_act": "relu"},
            "next": {"head": "ForNextSentencePrediction", "seed": 1},
            "classes": {"head": "ForSequenceClassification", "num_labels": 5, "classifier_dropout": 0.3},
            "tags": {"head": "ForTokenClassification", "num_labels": 7},
            "answers": {"head": "ForQuestionAnswering"},
        },
    ),
    Tiny(
        family="bert",
        make=make,
        exempt=KEY_BIAS,
        configs={"writes": {"head": "LMHeadModel", "is_decoder": True, "bos_token_id": 0, "eos_token_id": 1}},
    ),
)
