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
    loud = config.pop("loud", False)
    model = lively(WhisperForConditionalGeneration(WhisperConfig(**config)))
    with torch.no_grad():
        for convolution in (model.model.encoder.conv1, model.model.encoder.conv2):
            convolution.weight.mul_(convolution.in_channels**-0.5 * (5.0 if loud else 1.0))
        for name, parameter in model.named_parameters():
            # What is heard has to show in what is said: few places looked at, and not the mean of all.
            if name.endswith("encoder_attn.q_proj.weight"):
                parameter.mul_(8.0)
            elif name.endswith("encoder_attn.v_proj.weight" if loud else "decoder.layers.2.fc2.weight"):
                parameter.mul_(3.0)
            elif loud and "encoder.layers" in name and name.endswith(("fc2.weight", "out_proj.weight")):
                parameter.mul_(0.2)
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
            "loud": True,  # so that the convolutions' activation shows
        },
    },
)
