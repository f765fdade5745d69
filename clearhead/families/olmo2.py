"""OLMo 2 (OLMo team 2024): norms on what a sub-layer adds and none before it, and on whole queries and keys."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.config import BlockConfig, NormConfig, QKNormConfig, SublayerConfig, TransformerConfig
from clearhead.families.common import CLASSIFY
from clearhead.families.decoders import (
    architectures,
    attention_of,
    read_attention,
    read_biases,
    read_decoder,
    read_feed_forward,
    write_decoder,
)
from clearhead.families.family import GGUF, Family, Reader
from clearhead.families.layouts import (
    ATTENTION,
    BLOCK,
    EMBEDDING,
    ENDS,
    FEED_FORWARD,
    GGUF_EMBEDDING,
    GGUF_ENDS,
    GGUF_MATRICES,
    GGUF_QK_NORMS,
    LAYER,
    read_gguf,
    rows,
)
from clearhead.families.weights import Layout

ARCHITECTURES = architectures("Olmo2", CLASSIFY)


def read(r: Reader) -> TransformerConfig:
    r.assume(
        vocab_size=50304,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=2048,
        rms_norm_eps=1e-5,
    )
    norm = NormConfig(eps=r.get("rms_norm_eps"), round_first=False)
    attention = replace(read_attention(r), bias=read_biases(r), qk_norm=QKNormConfig(norm=norm, over="all_heads"))
    block = BlockConfig(
        mixer=SublayerConfig(op=attention, out=norm), ffn=SublayerConfig(op=read_feed_forward(r), out=norm)
    )
    return read_decoder(r, (block,) * r.get("num_hidden_layers"), norm, ids=(None, 50279, 1))


def write(config: TransformerConfig) -> dict[str, Any]:
    return {**write_decoder(config, ARCHITECTURES), "attention_bias": attention_of(config).bias.q}


NORMS = {"post_attention_layernorm": "mixer_norm.out", "post_feedforward_layernorm": "ffn_norm.out"}
GGUF_NORMS = {"post_attention_norm": "mixer_norm.out", "post_ffw_norm": "ffn_norm.out"}

WEIGHTS = (*EMBEDDING, *rows(LAYER, NORMS | ATTENTION | FEED_FORWARD), *ENDS)
GGUF_WEIGHTS = (*GGUF_EMBEDDING, *rows(BLOCK, GGUF_NORMS | GGUF_QK_NORMS), *GGUF_MATRICES, *GGUF_ENDS)

FAMILY = Family(
    model_type="olmo2",
    architectures=ARCHITECTURES,
    config=read,
    to_hf=write,
    weights=Layout(WEIGHTS, prefix="model."),
    gguf=GGUF(architecture="olmo2", config=read_gguf, weights=Layout(GGUF_WEIGHTS)),
)
