"""Phi-3, 3.5 and 4 (Abdin 2024): Llama with fused matrices, a part of each head rotated, LongRoPE."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.config import LongRopeScaling, MaskConfig, NormConfig, RotaryConfig, TransformerConfig
from clearhead.families.common import CLASSIFY, TAG, a
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
from clearhead.families.family import GGUF, Family, GGUFFile, Reader
from clearhead.families.layouts import (
    BLOCK,
    EMBEDDING,
    ENDS,
    GGUF_EMBEDDING,
    GGUF_ENDS,
    GGUF_PRE_NORMS,
    LAYER,
    OLD_ROTARY,
    PRE_NORMS,
    QKV,
    fused,
    read_gguf,
    rows,
)
from clearhead.families.weights import Layout

ARCHITECTURES = architectures("Phi3", CLASSIFY, TAG)


def read(r: Reader) -> TransformerConfig:
    r.assume(
        vocab_size=32064,
        hidden_size=3072,
        intermediate_size=8192,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=4096,
        original_max_position_embeddings=4096,
        rms_norm_eps=1e-5,
    )
    # Phi-4-mini names three things that the published code can do otherwise, and does not.
    for key, usual in (("lm_head_bias", False), ("full_attn_mod", 1), ("interpolate_factor", 1)):
        r.expect(key, usual)
    norm, dropout = NormConfig(eps=r.get("rms_norm_eps")), r.get("resid_pdrop", 0.0)
    attention = replace(read_attention(r), mask=MaskConfig(window=r.get("sliding_window")))
    block = pre_norm(attention, read_feed_forward(r), norm, dropout)
    return read_decoder(r, (block,) * r.get("num_hidden_layers"), norm, ids=(1, 32000, 32000))


def write(config: TransformerConfig) -> dict[str, Any]:
    out = write_decoder(config, ARCHITECTURES)
    rotary = a(RotaryConfig, attention_of(config).positions)
    trained = rotary.scaling.trained_length if isinstance(rotary.scaling, LongRopeScaling) else config.context
    return {
        **out,
        "original_max_position_embeddings": trained,
        "rope_parameters": {**out["rope_parameters"], "partial_rotary_factor": rotary.fraction},
        "resid_pdrop": config.stack.blocks[0].mixer.dropout,
        "sliding_window": window_of(config),
    }


QKV_PARTS, GATE_UP = tuple(f"mixer.{name}" for name in QKV), ("ffn.gate_proj", "ffn.up_proj")

WEIGHTS = (
    *EMBEDDING,
    *rows(LAYER, PRE_NORMS | {"self_attn.o_proj": "mixer.o_proj", "mlp.down_proj": "ffn.down_proj"}),
    *fused(f"{LAYER}self_attn.qkv_proj", QKV_PARTS),
    *fused(f"{LAYER}mlp.gate_up_proj", GATE_UP),
    *ENDS,
)
GGUF_WEIGHTS = (
    *GGUF_EMBEDDING,
    *rows(BLOCK, GGUF_PRE_NORMS | {"attn_output": "mixer.o_proj", "ffn_down": "ffn.down_proj"}),
    *fused(f"{BLOCK}attn_qkv", QKV_PARTS),
    *fused(f"{BLOCK}ffn_up", GATE_UP),
    *GGUF_ENDS,
)
FACTORS = {"short_factor": "rope_factors_short.weight", "long_factor": "rope_factors_long.weight"}


def from_gguf(r: Reader, file: GGUFFile) -> dict[str, Any]:
    trained, context = r.get("rope.scaling.original_context_length"), r.need("context_length")
    n_rotated, attention_factor = r.get("rope.dimension_count"), r.get("rope.scaling.attn_factor")
    config = read_gguf(r, file)
    scaling = {"rope_type": "longrope", "attention_factor": attention_factor}
    scaling |= {name: file.numbers(tensor) for name, tensor in FACTORS.items() if tensor in file.shapes}
    return {
        **config,
        "rope_scaling": scaling if "long_factor" in scaling else None,
        "partial_rotary_factor": (n_rotated or config["head_dim"]) / config["head_dim"],
        "original_max_position_embeddings": trained or context,
        "sliding_window": r.get("attention.sliding_window", 0) or None,
    }


FAMILY = Family(
    model_type="phi3",
    architectures=ARCHITECTURES,
    config=read,
    to_hf=write,
    weights=Layout(WEIGHTS, skips=OLD_ROTARY, prefix="model."),
    # The published code has a dropout behind the embedding in its config only.
    ignores=frozenset({"embd_pdrop"}),
    gguf=GGUF(architecture="phi3", config=from_gguf, weights=Layout(GGUF_WEIGHTS, skips=tuple(FACTORS.values()))),
)
