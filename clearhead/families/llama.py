"""Llama 2, 3, 3.1 (scaled rotary) and 3.2 (tied) (Touvron 2023; Llama team 2024)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.config import FeedForwardConfig, NormConfig, SublayerConfig, TransformerConfig
from clearhead.families.common import ANSWER, CLASSIFY, TAG, a
from clearhead.families.decoders import (
    architectures,
    attention_of,
    pre_norm,
    read_attention,
    read_biases,
    read_decoder,
    read_feed_forward,
    write_decoder,
)
from clearhead.families.family import GGUF, Family, GGUFFile, Reader
from clearhead.families.layouts import ANSWERING, GGUF_TURNED, LLAMA, OLD_ROTARY, read_gguf
from clearhead.families.weights import Layout

ARCHITECTURES = architectures("Llama", CLASSIFY, TAG, ANSWER)


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
    norm = NormConfig(eps=r.get("rms_norm_eps"))
    attention = replace(read_attention(r), bias=read_biases(r))
    feed_forward = replace(read_feed_forward(r), bias=r.get("mlp_bias", False))
    block = pre_norm(attention, feed_forward, norm)
    return read_decoder(r, (block,) * r.get("num_hidden_layers"), norm, ids=(1, 2, None))


def write(config: TransformerConfig) -> dict[str, Any]:
    attention, ffn = attention_of(config), a(SublayerConfig, config.stack.blocks[0].ffn)
    return {
        **write_decoder(config, ARCHITECTURES),
        "head_dim": attention.d_head,
        "attention_bias": attention.bias.q,
        "mlp_bias": a(FeedForwardConfig, ffn.op).bias,
    }


def from_gguf(r: Reader, file: GGUFFile) -> dict[str, Any]:
    config = read_gguf(r, file)
    return {
        **config,
        "rope_scaling": _factors(file) or config["rope_scaling"],
        "attention_bias": "blk.0.attn_q.bias" in file.shapes,
        "mlp_bias": "blk.0.ffn_up.bias" in file.shapes,
    }


def _factors(file: GGUFFile) -> dict[str, Any] | None:
    """Llama 3.1's scaling, which the file gives as one divisor a frequency."""
    if "rope_freqs.weight" not in file.shapes:
        return None
    divisors = file.numbers("rope_freqs.weight")
    return {
        "rope_type": "longrope",
        "short_factor": divisors,
        "long_factor": divisors,
        "factor": 1.0,
        "attention_factor": 1.0,
    }


FAMILY = Family(
    model_type="llama",
    architectures=ARCHITECTURES,
    config=read,
    to_hf=write,
    weights=Layout(LLAMA, skips=OLD_ROTARY, prefix="model.", prefix_of_some=ANSWERING),
    gguf=GGUF(architecture="llama", config=from_gguf, weights=Layout(GGUF_TURNED, skips=("rope_freqs.weight",))),
)
