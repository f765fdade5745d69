"""Gemma 2 (Gemma team 2024): every second layer has a window, norms on both sides of a sub-layer, soft caps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.config import MaskConfig, NormConfig, TokenHeadConfig, TransformerConfig
from clearhead.families.common import CLASSIFY, TAG, a, whole
from clearhead.families.decoders import (
    FULL,
    SLIDING,
    architectures,
    attention_of,
    layer_types,
    read_attention,
    read_biases,
    read_decoder,
    read_feed_forward,
    read_layer_types,
    sandwich,
    window_of,
    write_decoder,
)
from clearhead.families.family import GGUF, Family, GGUFFile, Reader
from clearhead.families.layouts import GEMMA, GGUF_GEMMA, read_gguf
from clearhead.families.weights import Layout

ARCHITECTURES = architectures("Gemma2", CLASSIFY, TAG)


def read(r: Reader) -> TransformerConfig:
    r.assume(
        vocab_size=256000,
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=26,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        max_position_embeddings=8192,
        rms_norm_eps=1e-6,
        query_pre_attn_scalar=256.0,
        sliding_window=4096,
        attn_logit_softcapping=50.0,
        final_logit_softcapping=30.0,
    )
    r.expect("use_bidirectional_attention", None, False)
    norm, attention = NormConfig(eps=r.get("rms_norm_eps"), offset=1.0, round_first=False), read_attention(r)
    scores = replace(
        attention.scores, scale=r.get("query_pre_attn_scalar") ** -0.5, softcap=r.optional("attn_logit_softcapping")
    )
    attention = replace(attention, bias=read_biases(r), scores=scores)
    feed_forward = read_feed_forward(r, "hidden_activation")
    masks = {FULL: MaskConfig(), SLIDING: MaskConfig(window=r.get("sliding_window"))}
    turns = [FULL if layer % 2 else SLIDING for layer in range(r.get("num_hidden_layers"))]
    return read_decoder(
        r,
        [sandwich(replace(attention, mask=masks[kind]), feed_forward, norm) for kind in read_layer_types(r, turns)],
        norm,
        ids=(2, 1, 0),
        embed_scale=r.get("hidden_size") ** 0.5,
        head=TokenHeadConfig(tie=r.get("tie_word_embeddings", True), softcap=r.optional("final_logit_softcapping")),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    attention, head = attention_of(config), config.heads.tokens
    return {
        **write_decoder(config, ARCHITECTURES, activation="hidden_activation"),
        "head_dim": attention.d_head,
        "attention_bias": attention.bias.q,
        "query_pre_attn_scalar": whole(a(float, attention.scores.scale) ** -2),
        "sliding_window": window_of(config),
        "layer_types": layer_types(config),
        "attn_logit_softcapping": attention.scores.softcap,
        "final_logit_softcapping": None if head is None else head.softcap,
        "use_bidirectional_attention": None,
    }


LAYERS_OF_27B = 46


def from_gguf(r: Reader, file: GGUFFile) -> dict[str, Any]:
    config = read_gguf(r, file)
    largest = config["num_hidden_layers"] == LAYERS_OF_27B
    return {
        **config,
        "sliding_window": r.need("attention.sliding_window"),
        "attn_logit_softcapping": r.get("attn_logit_softcapping", 50.0),
        "final_logit_softcapping": r.get("final_logit_softcapping", 30.0),
        # The file does not say; every published size uses the width of a head, but the largest.
        "query_pre_attn_scalar": config["hidden_size"] // config["num_attention_heads"]
        if largest
        else config["head_dim"],
    }


FAMILY = Family(
    model_type="gemma2",
    architectures=ARCHITECTURES,
    config=read,
    to_hf=write,
    weights=Layout(GEMMA, prefix="model."),
    # The first three repeat what other keys say, and are not what is computed.
    ignores=frozenset({"hidden_act", "sliding_window_size", "cache_implementation"}),
    gguf=GGUF(architecture="gemma2", config=from_gguf, weights=Layout(GGUF_GEMMA)),
)
