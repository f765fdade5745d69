"""Tiny ModernBERTs, with windows of three tokens to either side."""

from __future__ import annotations

from typing import Any

from torch import nn

from tests.tiny import Tiny, lively


def make(head: str = "ForMaskedLM", **changes: Any) -> nn.Module:
    """A tiny ModernBERT with the head of a task."""
    import transformers

    config = {
        "vocab_size": 99,
        "hidden_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "intermediate_size": 88,
        "max_position_embeddings": 64,
        "local_attention": 6,
        "bos_token_id": 0,
        "cls_token_id": 0,
        "eos_token_id": 1,
        "sep_token_id": 1,
        "pad_token_id": 2,
        **changes,
    }
    model = getattr(transformers, f"ModernBert{head}")(transformers.ModernBertConfig(**config))
    return lively(model)


TINY = Tiny(
    family="modernbert",
    make=make,
    kind="encoder",
    configs={
        "masked": {},
        "biased": {
            "attention_bias": True,
            "mlp_bias": True,
            "norm_bias": True,
            "classifier_bias": True,
            "decoder_bias": False,
            "classifier_activation": "silu",
            "hidden_activation": "gelu_pytorch_tanh",
            "norm_eps": 1e-3,
        },
        "other_layers": {
            "layer_types": ["sliding_attention", "full_attention", "full_attention", "sliding_attention"],
            "rope_parameters": {
                "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5e4},
                "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
            },
            "head": "Model",
        },
        "classes": {"head": "ForSequenceClassification", "classifier_pooling": "mean", "hidden_activation": "silu"},
        "first": {"head": "ForSequenceClassification", "classifier_dropout": 0.2},
        "tags": {"head": "ForTokenClassification", "num_labels": 5},
        "answers": {"head": "ForQuestionAnswering"},
    },
)
