"""Granite 3 (IBM 2024): Llama with four multipliers, of the embedding, corrections, scores and logits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.config import (
    BlockConfig,
    FeedForwardConfig,
    NormConfig,
    SublayerConfig,
    TokenHeadConfig,
    TransformerConfig,
)
from clearhead.families.common import a, whole
from clearhead.families.decoders import (
    architectures,
    attention_of,
    read_attention,
    read_biases,
    read_decoder,
    read_feed_forward,
    write_decoder,
)
from clearhead.families.family import GGUF, Family, GGUFFile, Reader
from clearhead.families.layouts import GGUF_TURNED, LLAMA, read_gguf
from clearhead.families.weights import Layout

ARCHITECTURES = architectures("Granite")


def read(r: Reader) -> TransformerConfig:
    r.assume(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=2048,
        rms_norm_eps=1e-6,
    )
    norm, residual = NormConfig(eps=r.get("rms_norm_eps")), float(r.get("residual_multiplier", 1.0))
    attention = replace(read_attention(r), bias=read_biases(r))
    scores = replace(attention.scores, scale=float(r.get("attention_multiplier", 1.0)))
    feed_forward = replace(read_feed_forward(r), bias=r.get("mlp_bias", False))
    block = BlockConfig(
        mixer=SublayerConfig(op=replace(attention, scores=scores), pre=norm, scale=residual),
        ffn=SublayerConfig(op=feed_forward, pre=norm, scale=residual),
    )
    return read_decoder(
        r,
        (block,) * r.get("num_hidden_layers"),
        norm,
        ids=(1, 2, None),
        embed_scale=float(r.get("embedding_multiplier", 1.0)),
        head=TokenHeadConfig(tie=r.get("tie_word_embeddings", False), scale=1.0 / r.get("logits_scaling", 1.0)),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    block, attention = config.stack.blocks[0], attention_of(config)
    head = config.heads.tokens
    return {
        **write_decoder(config, ARCHITECTURES),
        "attention_bias": attention.bias.q,
        "mlp_bias": a(FeedForwardConfig, a(SublayerConfig, block.ffn).op).bias,
        "embedding_multiplier": config.stack.embed.scale,
        "residual_multiplier": block.mixer.scale,
        "attention_multiplier": attention.scores.scale,
        "logits_scaling": 1.0 if head is None else whole(1.0 / head.scale),
    }


def from_gguf(r: Reader, file: GGUFFile) -> dict[str, Any]:
    return {
        **read_gguf(r, file),
        "embedding_multiplier": r.get("embedding_scale", 1.0),
        "residual_multiplier": r.get("residual_scale", 1.0),
        "attention_multiplier": r.get("attention.scale", 1.0),
        "logits_scaling": r.get("logit_scale", 1.0),
    }


FAMILY = Family(
    model_type="granite",
    architectures=ARCHITECTURES,
    config=read,
    to_hf=write,
    weights=Layout(LLAMA, prefix="model."),
    gguf=GGUF(architecture="granite", config=from_gguf, weights=Layout(GGUF_TURNED)),
)
