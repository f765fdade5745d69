"""Decoders of attention and nothing else (Elhage 2021, "A Mathematical Framework for Transformer Circuits"), in Llama's
words: no class of the `transformers` package builds them, but a Llama (or, where `attention_multiplier` is given, a
Granite) with an intermediate_size of 0 computes the same.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.config import BlockConfig, NormConfig, SublayerConfig, TransformerConfig
from clearhead.families.decoders import (
    architectures,
    attention_of,
    read_attention,
    read_biases,
    read_decoder,
    write_decoder,
)
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import ATTENTION, EMBEDDING, ENDS, LAYER, rows
from clearhead.families.weights import Layout

ARCHITECTURES = architectures("AttentionOnly")


def read(r: Reader) -> TransformerConfig:
    r.assume(
        vocab_size=1024,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=8,
        max_position_embeddings=256,
        rms_norm_eps=1e-6,
    )
    norm = NormConfig(eps=r.get("rms_norm_eps"))
    attention = read_attention(r)
    scores = replace(attention.scores, scale=r.optional("attention_multiplier"))
    attention = replace(attention, bias=read_biases(r), scores=scores)
    block = BlockConfig(mixer=SublayerConfig(op=attention, pre=norm))
    return read_decoder(r, (block,) * r.get("num_hidden_layers"), norm, ids=(None, None, None))


def write(config: TransformerConfig) -> dict[str, Any]:
    attention = attention_of(config)
    return {
        **write_decoder(config, ARCHITECTURES),
        "head_dim": attention.d_head,
        "attention_bias": attention.bias.q,
        "attention_multiplier": attention.scores.scale,
    }


FAMILY = Family(
    model_type="attention_only",
    architectures=ARCHITECTURES,
    config=read,
    to_hf=write,
    weights=Layout(
        (*EMBEDDING, *rows(LAYER, {"input_layernorm": "mixer_norm.pre"} | ATTENTION), *ENDS), prefix="model."
    ),
)
