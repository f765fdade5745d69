"""Mistral (Jiang 2023): Llama with a window on every layer, or on none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.config import MaskConfig, NormConfig, TransformerConfig
from clearhead.families.common import ANSWER, CLASSIFY, TAG
from clearhead.families.decoders import (
    architectures,
    attention_of,
    pre_norm,
    read_attention,
    read_decoder,
    read_feed_forward,
    window_of,
    write_decoder,
)
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import LLAMA, OLD_ROTARY
from clearhead.families.weights import Layout

ARCHITECTURES = architectures("Mistral", CLASSIFY, TAG, ANSWER)


def read(r: Reader) -> TransformerConfig:
    r.assume(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=131072,
        rms_norm_eps=1e-6,
        sliding_window=4096,
    )
    norm = NormConfig(eps=r.get("rms_norm_eps"))
    attention = replace(read_attention(r), mask=MaskConfig(window=r.optional("sliding_window")))
    block = pre_norm(attention, read_feed_forward(r), norm)
    return read_decoder(r, (block,) * r.get("num_hidden_layers"), norm, ids=(1, 2, None))


def write(config: TransformerConfig) -> dict[str, Any]:
    return {
        **write_decoder(config, ARCHITECTURES),
        "head_dim": attention_of(config).d_head,
        "sliding_window": window_of(config),
    }


# In GGUF it is written as Llama.
FAMILY = Family(
    model_type="mistral",
    architectures=ARCHITECTURES,
    config=read,
    to_hf=write,
    weights=Layout(LLAMA, skips=OLD_ROTARY, prefix="model."),
)
