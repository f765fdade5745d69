"""Qwen 2 and 2.5 (Yang 2024): biases on queries, keys and values alone, windows from a layer on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.config import BiasConfig, NormConfig, TransformerConfig
from clearhead.families.common import ANSWER, CLASSIFY, TAG
from clearhead.families.decoders import (
    architectures,
    pre_norm,
    read_attention,
    read_decoder,
    read_feed_forward,
    read_late_windows,
    write_decoder,
    write_late_windows,
)
from clearhead.families.family import GGUF, Family, Reader
from clearhead.families.layouts import ANSWERING, GGUF_PLAIN, LLAMA, OLD_ROTARY, read_gguf
from clearhead.families.weights import Layout

ARCHITECTURES = architectures("Qwen2", CLASSIFY, TAG, ANSWER)


def read(r: Reader) -> TransformerConfig:
    r.assume(
        vocab_size=151936,
        hidden_size=4096,
        intermediate_size=22016,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=32768,
        rms_norm_eps=1e-6,
        sliding_window=4096,
    )
    norm = NormConfig(eps=r.get("rms_norm_eps"))
    attention = replace(read_attention(r), bias=BiasConfig(q=True, k=True, v=True))
    feed_forward = read_feed_forward(r)
    blocks = [pre_norm(replace(attention, mask=mask), feed_forward, norm) for mask in read_late_windows(r)]
    return read_decoder(r, blocks, norm, ids=(None, None, None))


def write(config: TransformerConfig) -> dict[str, Any]:
    return {**write_decoder(config, ARCHITECTURES), **write_late_windows(config)}


FAMILY = Family(
    model_type="qwen2",
    architectures=ARCHITECTURES,
    config=read,
    to_hf=write,
    weights=Layout(LLAMA, skips=OLD_ROTARY, prefix="model.", prefix_of_some=ANSWERING),
    gguf=GGUF(architecture="qwen2", config=read_gguf, weights=Layout(GGUF_PLAIN)),
)
