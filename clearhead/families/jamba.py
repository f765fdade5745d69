"""Jamba (AI21 2024): Mamba, attention without positions every eighth layer, and experts every second."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.config import (
    BlockConfig,
    ConvConfig,
    ExpertsConfig,
    FeedForwardConfig,
    MambaConfig,
    NormConfig,
    RotaryConfig,
    RouterConfig,
    SublayerConfig,
    TransformerConfig,
)
from clearhead.families.bamba import ENDS, FEED_FORWARD, NORMS
from clearhead.families.common import CLASSIFY, a, whole
from clearhead.families.decoders import architectures, read_attention, read_decoder, read_feed_forward
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import ATTENTION, EMBEDDING, LAYER, rows
from clearhead.families.row_ops import Stack
from clearhead.families.scans import (
    ATTENTION_KEYS,
    FULL,
    LINEAR,
    SCAN_KEYS,
    TRAINING,
    every,
    mixers,
    rank,
    read_mixers,
    scan_rows,
    write_hybrid,
)
from clearhead.families.weights import Layout, Row

ARCHITECTURES = architectures("Jamba", CLASSIFY)


def read(r: Reader) -> TransformerConfig:
    r.assume(
        vocab_size=65536,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=262144,
        rms_norm_eps=1e-6,
    )
    r.expect("mamba_inner_layernorms", True)
    norm, dense = NormConfig(eps=r.get("rms_norm_eps")), read_feed_forward(r)
    layers, n_experts = range(r.get("num_hidden_layers")), r.get("num_experts", 16)
    attends, chooses = _read_period(r, "attn_layer", 8, 4), _read_period(r, "expert_layer", 2, 1)
    kinds = [FULL if attends(layer) else LINEAR for layer in layers]
    ops = read_mixers(
        kinds,
        lambda: replace(read_attention(r, RotaryConfig()), positions=None),
        lambda: _read_scan(r, dense.activation, norm),
    )
    mixture = _read_experts(r, n_experts, dense) if n_experts > 1 else dense
    ffns = [mixture if chooses(layer) else dense for layer in layers]
    blocks = [
        BlockConfig(mixer=SublayerConfig(op=op, pre=norm), ffn=SublayerConfig(op=ffn, pre=norm))
        for op, ffn in zip(ops, ffns, strict=True)
    ]
    return read_decoder(r, blocks, norm, ids=(1, 2, 0))


def _read_experts(r: Reader, n_experts: int, expert: FeedForwardConfig) -> ExpertsConfig:
    router = RouterConfig(balance=r.get("router_aux_loss_coef", 0.001))
    return ExpertsConfig(n_experts=n_experts, n_chosen=r.get("num_experts_per_tok", 2), expert=expert, router=router)


def _read_scan(r: Reader, activation: Any, norm: NormConfig) -> MambaConfig:
    return MambaConfig(
        d_inner=int(r.get("mamba_expand", 2) * r.get("hidden_size")),
        d_state=r.get("mamba_d_state", 16),
        dt_rank=rank(r, "mamba_dt_rank", r.get("hidden_size")),
        conv=ConvConfig(width=r.get("mamba_d_conv", 4), bias=r.get("mamba_conv_bias", True), activation=activation),
        bias=r.get("mamba_proj_bias", False),
        inner_norm=norm,
    )


def _read_period(r: Reader, name: str, period: int, offset: int) -> Any:
    """Which layers are of a kind that comes once a period."""
    period, offset = r.get(f"{name}_period", period), r.get(f"{name}_offset", offset)
    return lambda layer: layer % period == offset


def write(config: TransformerConfig) -> dict[str, Any]:
    _, scan, kinds = mixers(config)
    ffns = [a(SublayerConfig, block.ffn).op for block in config.stack.blocks]
    mixture = next((op for op in ffns if isinstance(op, ExpertsConfig)), None)
    attn_period, attn_offset = every([kind == FULL for kind in kinds])
    expert_period, expert_offset = every([isinstance(op, ExpertsConfig) for op in ffns])
    return {
        **write_hybrid(config, ARCHITECTURES),
        **({} if scan is None else _write_scan(a(MambaConfig, scan), config.d_model)),
        "attn_layer_period": attn_period,
        "attn_layer_offset": attn_offset,
        "expert_layer_period": expert_period,
        "expert_layer_offset": expert_offset,
        **({"num_experts": 1} if mixture is None else _write_experts(mixture)),
    }


def _write_experts(op: ExpertsConfig) -> dict[str, Any]:
    return {
        "num_experts": op.n_experts,
        "num_experts_per_tok": op.n_chosen,
        "router_aux_loss_coef": op.router.balance,
    }


def _write_scan(op: MambaConfig, d_model: int) -> dict[str, Any]:
    return {
        "mamba_d_state": op.d_state,
        "mamba_dt_rank": op.dt_rank,
        "mamba_expand": whole(op.d_inner / d_model),
        "mamba_d_conv": op.conv.width,
        "mamba_conv_bias": op.conv.bias,
        "mamba_proj_bias": op.bias,
    }


EXPERTS = tuple(
    Row(f"{LAYER}feed_forward.experts.{{e}}.{name}.weight", f"layers.{{l}}.ffn.{name}", Stack())
    for name in ("gate_proj", "up_proj", "down_proj")
)
ROUTER = {"feed_forward.router": "ffn.router"}
INNER_NORMS = (("dt_layernorm", "dt_norm"), ("b_layernorm", "B_norm"), ("c_layernorm", "C_norm"))

FAMILY = Family(
    model_type="jamba",
    architectures=ARCHITECTURES,
    config=read,
    to_hf=write,
    weights=Layout(
        (
            *EMBEDDING,
            *rows(LAYER, ATTENTION | FEED_FORWARD | NORMS | ROUTER),
            *EXPERTS,
            *scan_rows(LAYER + "mamba.", INNER_NORMS),
            *ENDS,
        ),
        prefix="model.",
    ),
    ignores=TRAINING
    | ATTENTION_KEYS
    | SCAN_KEYS
    | set("use_mamba_kernels use_mambapy use_associative_scan sliding_window calc_logits_for_entire_prompt".split())
    | {"num_experts_per_tok", "router_aux_loss_coef", "n_ctx"},
)
