"""Gemma 3, text (Gemma team 2025): windows five to one, two rotary bases, norms on both sides of a sub-layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.config import (
    BlockConfig,
    MaskConfig,
    NormConfig,
    QKNormConfig,
    RotaryConfig,
    TokenHeadConfig,
    TransformerConfig,
)
from clearhead.families.common import a, whole
from clearhead.families.decoders import (
    FULL,
    SLIDING,
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
from clearhead.families.rope import rotary_from, write_rotary
from clearhead.families.weights import Layout

ARCHITECTURES = ("Gemma3ForCausalLM", "Gemma3TextModel", "Gemma3TextForSequenceClassification")


def read(r: Reader) -> TransformerConfig:
    r.assume(
        vocab_size=262208,
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=26,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        max_position_embeddings=131072,
        rms_norm_eps=1e-6,
        query_pre_attn_scalar=256.0,
        sliding_window=4096,
    )
    norm = NormConfig(eps=r.get("rms_norm_eps"), offset=1.0, round_first=False)
    rotary, masks = _read_rotary(r, r.get("max_position_embeddings")), _read_masks(r)
    feed_forward, bias = read_feed_forward(r, "hidden_activation"), read_biases(r)
    scale = r.get("query_pre_attn_scalar") ** -0.5

    def block(kind: str) -> BlockConfig:
        attention = read_attention(r, rotary[kind])
        scores = replace(attention.scores, scale=scale)
        attention = replace(attention, bias=bias, scores=scores, mask=masks[kind], qk_norm=QKNormConfig(norm=norm))
        return sandwich(attention, feed_forward, norm)

    # The first spelling is still written beside layer_types, so it is carried along and not replaced.
    every = r.get("sliding_window_pattern", r.raw.get("_sliding_window_pattern", 6))
    turns = [SLIDING if (layer + 1) % every else FULL for layer in range(r.get("num_hidden_layers"))]
    return read_decoder(
        r,
        [block(kind) for kind in read_layer_types(r, turns)],
        norm,
        ids=(2, 1, 0),
        embed_scale=r.get("hidden_size") ** 0.5,
        head=TokenHeadConfig(tie=r.get("tie_word_embeddings", True), softcap=r.get("final_logit_softcapping")),
    )


def _read_masks(r: Reader) -> dict[str, MaskConfig]:
    window = r.get("sliding_window", 4096)
    if r.get("use_bidirectional_attention", False):
        return {FULL: MaskConfig(kind="full"), SLIDING: MaskConfig(kind="full", window=window // 2)}
    return {FULL: MaskConfig(), SLIDING: MaskConfig(window=window)}


def _read_rotary(r: Reader, context: int) -> dict[str, RotaryConfig]:
    """Full layers turn slowly and may be scaled; windows turn as in Gemma 2 and never are."""
    theta, local = r.get("rope_theta", 1_000_000.0), r.get("rope_local_base_freq", 10_000.0)
    old, new = r.inner("rope_scaling"), r.inner("rope_parameters")
    if new is None:
        return {FULL: rotary_from(old, theta, 1.0, context), SLIDING: rotary_from(None, local, 1.0, context)}
    both = {
        FULL: rotary_from(new.inner(FULL), theta, 1.0, context),
        SLIDING: rotary_from(new.inner(SLIDING), local, 1.0, context),
    }
    new.finish()
    return both


def write(config: TransformerConfig) -> dict[str, Any]:
    attention, head, window = attention_of(config), config.heads.tokens, window_of(config)
    kinds, both_ways = layer_types(config), attention.mask.kind == "full"
    rotary = {kind: attention_of(config, layer).positions for layer, kind in enumerate(kinds)}
    return {
        **write_decoder(config, ARCHITECTURES, activation="hidden_activation"),
        "head_dim": attention.d_head,
        "rope_parameters": {kind: write_rotary(a(RotaryConfig, turns)) for kind, turns in sorted(rotary.items())},
        "attention_bias": attention.bias.q,
        "query_pre_attn_scalar": whole(a(float, attention.scores.scale) ** -2),
        "sliding_window": window * 2 if window is not None and both_ways else window,
        "layer_types": kinds,
        "final_logit_softcapping": None if head is None else head.softcap,
        "use_bidirectional_attention": both_ways,
    }


LAYERS_OF_27B = 62


def from_gguf(r: Reader, file: GGUFFile) -> dict[str, Any]:
    r.assume(**{"attention.key_length": 256, "rope.freq_base": 1_000_000.0})
    config = read_gguf(r, file)
    largest = config["num_hidden_layers"] == LAYERS_OF_27B
    return {
        **config,
        "sliding_window": r.need("attention.sliding_window"),
        "rope_local_base_freq": r.get("rope.freq_base_swa", 10_000.0),
        # The file does not say; every published size uses the width of a head, but the largest.
        "query_pre_attn_scalar": config["hidden_size"] // config["num_attention_heads"]
        if largest
        else config["head_dim"],
        "final_logit_softcapping": r.get("final_logit_softcapping"),
    }


FAMILY = Family(
    model_type="gemma3_text",
    architectures=ARCHITECTURES,
    config=read,
    to_hf=write,
    weights=Layout(GEMMA, prefix="model."),
    # attn_logit_softcapping is in the files and in no published computation.
    ignores=frozenset({"attn_logit_softcapping", "cache_implementation", "_sliding_window_pattern"}),
    gguf=GGUF(architecture="gemma3", config=from_gguf, weights=Layout(GGUF_GEMMA)),
)
