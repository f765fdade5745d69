"""Tiny Marians, which are the Transformer of 2017."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from tests.tiny import Tiny, lively


def make(**changes: Any) -> nn.Module:
    """A tiny Marian; its sinusoidal tables stay what they are, since no file holds them."""
    from transformers import MarianConfig, MarianMTModel

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
        "activation_function": "swish",
        "scale_embedding": True,
        "pad_token_id": 98,
        "eos_token_id": 0,
        "decoder_start_token_id": 98,
        **changes,
    }
    model = MarianMTModel(MarianConfig(**config))
    tables = {
        name: parameter.detach().clone()
        for name, parameter in model.named_parameters()
        if name.endswith("embed_positions.weight")
    }
    model = lively(model)
    with torch.no_grad():
        for name, table in tables.items():
            model.get_parameter(name).copy_(table)
        # Large vectors, scaled, would drown the positions.
        for table in {id(p): p for n, p in model.named_parameters() if "embed_tokens" in n or "shared" in n}.values():
            table.mul_(0.3)
        bias = model.final_logits_bias
        bias.copy_(0.3 * torch.randn(bias.shape, generator=torch.Generator().manual_seed(7)))
    return model


TINY = Tiny(
    family="marian",
    make=make,
    kind="seq2seq",
    configs={
        "swish": {},
        "relu_of_2017": {"activation_function": "relu", "decoder_attention_heads": 4, "decoder_layers": 2},
        "two_vocabularies": {
            "share_encoder_decoder_embeddings": False,
            "decoder_vocab_size": 101,
            "scale_embedding": False,
        },
        "own_head": {
            "share_encoder_decoder_embeddings": False,
            "decoder_vocab_size": 101,
            "tie_word_embeddings": False,
        },
    },
)
