"""Tiny BARTs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.tiny import Tiny, lively


def make(**changes: Any) -> nn.Module:
    """A tiny BART, or without its head."""
    from transformers import BartConfig, BartForConditionalGeneration, BartModel

    config = {
        "vocab_size": 99,
        "d_model": 64,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 96,
        "decoder_ffn_dim": 80,
        "max_position_embeddings": 40,
        **changes,
    }
    bare = config.pop("bare", False)
    model = lively((BartModel if bare else BartForConditionalGeneration)(BartConfig(**config)))
    if not bare:
        bias = model.final_logits_bias
        bias.copy_(0.3 * torch.randn(bias.shape, generator=torch.Generator().manual_seed(7)))
    return model


TINY = Tiny(
    family="bart",
    make=make,
    kind="seq2seq",
    configs={
        "plain": {},
        "scaled_relu": {"scale_embedding": True, "activation_function": "relu", "encoder_layers": 3},
        "bare": {"bare": True},
    },
)
