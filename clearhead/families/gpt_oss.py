"""gpt-oss (OpenAI 2025): sinks, windows on every other layer, experts with a clamped gate and biases everywhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.config import (
    ClampedGate,
    ExpertsConfig,
    FeedForwardConfig,
    MaskConfig,
    NormConfig,
    RouterConfig,
    SublayerConfig,
    TransformerConfig,
)
from clearhead.families.common import CLASSIFY, TAG, a
from clearhead.families.decoders import (
    FULL,
    SLIDING,
    architectures,
    attention_of,
    layer_types,
    pre_norm,
    read_attention,
    read_biases,
    read_decoder,
    read_layer_types,
    window_of,
    write_decoder,
)
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import ATTENTION, EMBEDDING, ENDS, LAYER, PRE_NORMS, rows
from clearhead.families.rope import read_rotary
from clearhead.families.row_ops import Interleave, Transpose
from clearhead.families.weights import Layout, Row

ARCHITECTURES = architectures("GptOss", CLASSIFY, TAG)
YARN = {"rope_type": "yarn", "factor": 32.0, "original_max_position_embeddings": 4096, "truncate": False}


def read(r: Reader) -> TransformerConfig:
    r.assume(
        vocab_size=201088,
        hidden_size=2880,
        intermediate_size=2880,
        num_hidden_layers=36,
        num_attention_heads=64,
        num_key_value_heads=8,
        head_dim=64,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        sliding_window=128,
        attention_bias=True,
    )
    if not {"rope_parameters", "rope_scaling"} & r.raw.keys():
        r.assume(rope_parameters=YARN)
    norm = NormConfig(eps=r.get("rms_norm_eps"), round_first=False)
    attention = read_attention(r, read_rotary(r, r.get("max_position_embeddings"), theta=150_000.0))
    attention = replace(attention, bias=read_biases(r), scores=replace(attention.scores, sinks=True))
    masks = {FULL: MaskConfig(), SLIDING: MaskConfig(window=r.get("sliding_window"))}
    op = _read_experts(r)
    turns = [FULL if layer % 2 else SLIDING for layer in range(r.get("num_hidden_layers"))]
    blocks = [pre_norm(replace(attention, mask=masks[kind]), op, norm) for kind in read_layer_types(r, turns)]
    return read_decoder(r, blocks, norm, ids=(None, None, None))


def _read_experts(r: Reader) -> ExpertsConfig:
    r.expect("hidden_act", "silu")
    gate = ClampedGate(limit=r.get("swiglu_limit", 7.0), alpha=r.get("swiglu_alpha", 1.702))
    return ExpertsConfig(
        n_experts=r.get("num_local_experts", 128),
        n_chosen=r.get("num_experts_per_tok", 4),
        expert=FeedForwardConfig(d_ff=r.get("intermediate_size"), activation=gate, bias=True),
        router=RouterConfig(score="topk_softmax", bias=True, balance=r.get("router_aux_loss_coef", 0.001)),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    attention = attention_of(config)
    op = a(ExpertsConfig, a(SublayerConfig, config.stack.blocks[0].ffn).op)
    gate = a(ClampedGate, op.expert.activation)
    return {
        **write_decoder(config, ARCHITECTURES),
        "head_dim": attention.d_head,
        "attention_bias": attention.bias.q,
        "sliding_window": window_of(config),
        "layer_types": layer_types(config),
        "intermediate_size": op.expert.d_ff,
        "hidden_act": "silu",
        "swiglu_limit": gate.limit,
        "swiglu_alpha": gate.alpha,
        "num_local_experts": op.n_experts,
        "num_experts_per_tok": op.n_chosen,
        "router_aux_loss_coef": op.router.balance,
    }


EXPERTS, OURS = f"{LAYER}mlp.experts.", "layers.{l}.ffn."
LAYERS = (
    *rows(LAYER, PRE_NORMS | ATTENTION),
    Row(f"{LAYER}self_attn.sinks", "layers.{l}.mixer.sinks"),
    *rows(LAYER, {"mlp.router": "ffn.router"}),
    Row(f"{EXPERTS}gate_up_proj", (f"{OURS}gate_proj", f"{OURS}up_proj"), Interleave()),
    Row(f"{EXPERTS}gate_up_proj_bias", (f"{OURS}gate_bias", f"{OURS}up_bias"), Interleave()),
    Row(f"{EXPERTS}down_proj", f"{OURS}down_proj", Transpose),
    Row(f"{EXPERTS}down_proj_bias", f"{OURS}down_bias"),
)

FAMILY = Family(
    model_type="gpt_oss",
    architectures=ARCHITECTURES,
    config=read,
    to_hf=write,
    weights=Layout((*EMBEDDING, *LAYERS, *ENDS), prefix="model."),
    ignores=frozenset({"output_router_logits", "experts_per_token", "initial_context_length"}),
)
