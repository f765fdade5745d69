"""Tiny Whispers: 20 bands, 60 frames, 30 tokens of sound."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.tiny import Tiny, lively


def make(**changes: Any) -> nn.Module:
    """A tiny Whisper."""
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = {
        "vocab_size": 99,
        "d_model": 64,
        "encoder_layers": 2,
        "decoder_layers": 3,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 96,
        "decoder_ffn_dim": 80,
        "num_mel_bins": 20,
        "max_source_positions": 30,
        "max_target_positions": 40,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 3,
        "suppress_tokens": [5, 6],
        "begin_suppress_tokens": [7, 8],
        **changes,
    }
    model = lively(WhisperForConditionalGeneration(WhisperConfig(**config)))
    with torch.no_grad():
        for convolution in (model.model.encoder.conv1, model.model.encoder.conv2):
            convolution.weight.mul_(convolution.in_channels**-0.5)  # a loud stream would drown what the layers add
    return model


TINY = Tiny(
    family="whisper",
    make=make,
    kind="audio",
    configs={
        "plain": {},
        "own_head_relu": {
            "scale_embedding": True,  # which their model reads and does not use
            "tie_word_embeddings": False,
            "activation_function": "relu",
            "num_mel_bins": 12,
        },
    },
)
