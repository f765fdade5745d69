"""Bamba (IBM 2024): Mamba-2 with a few layers of attention, of whose heads one half is rotated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    FeedForwardConfig,
    Mamba2Config,
    NormConfig,
    RotaryConfig,
    SublayerConfig,
    TransformerConfig,
)
from clearhead.families.common import a
from clearhead.families.decoders import architectures, read_attention, read_biases, read_decoder, read_feed_forward
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import ATTENTION, EMBEDDING, LABELS, LAYER, TIED, rows
from clearhead.families.rope import read_rotary, write_rotary
from clearhead.families.scans import (
    ATTENTION_KEYS,
    FULL,
    LINEAR,
    MAMBA2_ROWS,
    SCAN_KEYS,
    TRAINING,
    mixers,
    read_mamba2,
    read_mixers,
    write_hybrid,
    write_mamba2,
)
from clearhead.families.weights import Layout, Row

ARCHITECTURES = architectures("Bamba")


def read(r: Reader) -> TransformerConfig:
    r.assume(
        vocab_size=128000,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=262144,
        rms_norm_eps=1e-5,
    )
    norm = NormConfig(eps=r.get("rms_norm_eps"))
    feed_forward = replace(read_feed_forward(r), bias=r.get("mlp_bias", False))
    attends, n_layers = r.get("attn_layer_indices", []), r.get("num_hidden_layers")
    kinds = [FULL if layer in attends else LINEAR for layer in range(n_layers)]
    ops = read_mixers(kinds, lambda: _read_attention(r), lambda: read_mamba2(r, feed_forward.activation, norm))
    ffn = SublayerConfig(op=feed_forward, pre=norm)
    blocks = [BlockConfig(mixer=SublayerConfig(op=op, pre=norm), ffn=ffn) for op in ops]
    return read_decoder(r, blocks, norm, ids=(1, 2, 0))


def _read_attention(r: Reader) -> AttentionConfig:
    # One half is rotated, whatever the config says.
    rotary = replace(read_rotary(r, r.get("max_position_embeddings")), fraction=0.5)
    return replace(read_attention(r, rotary), bias=read_biases(r))


def write(config: TransformerConfig) -> dict[str, Any]:
    attention, scan, kinds = mixers(config)
    rope: dict[str, Any] = {}
    if attention is not None:
        rope = {"rope_parameters": write_rotary(a(RotaryConfig, attention.positions))}
        rope |= {"attention_bias": attention.bias.q}
    return {
        **write_hybrid(config, ARCHITECTURES),
        **({} if scan is None else write_mamba2(a(Mamba2Config, scan), config.d_model)),
        **rope,
        "mlp_bias": a(FeedForwardConfig, a(SublayerConfig, config.stack.blocks[0].ffn).op).bias,
        "attn_layer_indices": [layer for layer, kind in enumerate(kinds) if kind == FULL],
    }


FEED_FORWARD = {f"feed_forward.{name}_proj": f"ffn.{name}_proj" for name in ("gate", "up", "down")}
NORMS = {"input_layernorm": "mixer_norm.pre", "pre_ff_layernorm": "ffn_norm.pre"}
ENDS = (Row("model.final_layernorm.weight", "norm.weight"), Row("lm_head.weight", "head.weight", TIED), *LABELS)

FAMILY = Family(
    model_type="bamba",
    architectures=ARCHITECTURES,
    config=read,
    to_hf=write,
    weights=Layout(
        (*EMBEDDING, *rows(LAYER, ATTENTION | FEED_FORWARD | NORMS), *MAMBA2_ROWS, *ENDS),
        prefix="model.",
    ),
    ignores=TRAINING | ATTENTION_KEYS | SCAN_KEYS | {"z_loss_coefficient", "attn_rotary_emb"},
)
