"""Mixtral (Jiang 2024): Mistral with eight feed-forwards, two of which work on each token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.config import ExpertsConfig, MaskConfig, NormConfig, RouterConfig, SublayerConfig, TransformerConfig
from clearhead.families.common import ANSWER, CLASSIFY, TAG, a
from clearhead.families.decoders import (
    architectures,
    attention_of,
    pre_norm,
    read_attention,
    read_decoder,
    read_feed_forward,
    window_of,
    write_decoder,
    write_feed_forward,
)
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import ATTENTION, EMBEDDING, ENDS, LAYER, OLD_ROTARY, PRE_NORMS, experts, rows
from clearhead.families.rope import read_rotary
from clearhead.families.weights import Layout, Row

ARCHITECTURES = architectures("Mixtral", CLASSIFY, TAG, ANSWER)


def read(r: Reader) -> TransformerConfig:
    r.assume(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=14336,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=8,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
    )
    r.expect("router_jitter_noise", 0.0)
    norm = NormConfig(eps=r.get("rms_norm_eps"))
    rotary = read_rotary(r, r.get("max_position_embeddings"), theta=1e6)
    attention = replace(read_attention(r, rotary), mask=MaskConfig(window=r.optional("sliding_window")))
    op = ExpertsConfig(
        n_experts=r.get("num_local_experts", 8),
        n_chosen=r.get("num_experts_per_tok", 2),
        expert=read_feed_forward(r),
        router=RouterConfig(renormalise=True, balance=r.get("router_aux_loss_coef", 0.001)),
    )
    return read_decoder(r, (pre_norm(attention, op, norm),) * r.get("num_hidden_layers"), norm, ids=(1, 2, None))


def write(config: TransformerConfig) -> dict[str, Any]:
    op = a(ExpertsConfig, a(SublayerConfig, config.stack.blocks[0].ffn).op)
    return {
        **write_decoder(config, ARCHITECTURES),
        **write_feed_forward(op.expert),
        "head_dim": attention_of(config).d_head,
        "sliding_window": window_of(config),
        "num_local_experts": op.n_experts,
        "num_experts_per_tok": op.n_chosen,
        "router_aux_loss_coef": op.router.balance,
        "router_jitter_noise": 0.0,
    }


LAYERS = (
    *rows(LAYER, PRE_NORMS | ATTENTION),
    Row(f"{LAYER}block_sparse_moe.gate.weight", "layers.{l}.ffn.router.weight"),
    *experts(f"{LAYER}block_sparse_moe.experts.{{e}}", gate="w1", up="w3", down="w2"),
)

FAMILY = Family(
    model_type="mixtral",
    architectures=ARCHITECTURES,
    config=read,
    to_hf=write,
    weights=Layout((*EMBEDDING, *LAYERS, *ENDS), skips=OLD_ROTARY, prefix="model."),
    ignores=frozenset({"output_router_logits"}),
)
