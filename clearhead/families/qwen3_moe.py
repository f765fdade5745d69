"""Qwen 3 with experts (Yang 2025): Qwen 3's attention, many small feed-forwards, and plain ones in some layers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.config import (
    ExpertsConfig,
    FeedForwardConfig,
    MaskConfig,
    NormConfig,
    QKNormConfig,
    RouterConfig,
    SublayerConfig,
    TransformerConfig,
)
from clearhead.families.common import ACTIVATION_NAMES, ANSWER, CLASSIFY, TAG, a, published_activation
from clearhead.families.decoders import (
    architectures,
    attention_of,
    pre_norm,
    read_attention,
    read_biases,
    read_decoder,
    read_feed_forward,
    window_of,
    write_decoder,
    write_feed_forward,
)
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import LAYER, LLAMA, experts
from clearhead.families.weights import Layout, Row

ARCHITECTURES = architectures("Qwen3Moe", CLASSIFY, TAG, ANSWER)


def read(r: Reader) -> TransformerConfig:
    r.assume(
        vocab_size=151936,
        hidden_size=2048,
        intermediate_size=6144,
        num_hidden_layers=24,
        num_attention_heads=32,
        num_key_value_heads=4,
        max_position_embeddings=32768,
        rms_norm_eps=1e-6,
        sliding_window=4096,
    )
    norm = NormConfig(eps=r.get("rms_norm_eps"))
    window = r.optional("sliding_window")
    attention = replace(
        read_attention(r),
        bias=read_biases(r),
        qk_norm=QKNormConfig(norm=norm),
        mask=MaskConfig(window=window if r.get("use_sliding_window", False) else None),
    )
    sparse, plain, step = _read_experts(r), r.get("mlp_only_layers", []), r.get("decoder_sparse_step", 1)
    ops = [
        read_feed_forward(r) if sparse is None or layer in plain or (layer + 1) % step else sparse
        for layer in range(r.get("num_hidden_layers"))
    ]
    blocks = [pre_norm(attention, op, norm) for op in ops]
    return read_decoder(r, blocks, norm, ids=(None, None, None))


def _read_experts(r: Reader) -> ExpertsConfig | None:
    # The older spelling is the Hub's.
    n_experts = r.get("num_local_experts", r.get("num_experts", 128))
    n_chosen, d_ff = r.get("num_experts_per_tok", 8), r.get("moe_intermediate_size", 768)
    router = RouterConfig(renormalise=r.get("norm_topk_prob", False), balance=r.get("router_aux_loss_coef", 0.001))
    if n_experts == 0:
        return None
    expert = FeedForwardConfig(d_ff=d_ff, activation=r.choose("hidden_act", ACTIVATION_NAMES, "silu"))
    return ExpertsConfig(n_experts=n_experts, n_chosen=n_chosen, expert=expert, router=router)


def write(config: TransformerConfig) -> dict[str, Any]:
    attention, window = attention_of(config), window_of(config)
    ops = [a(SublayerConfig, block.ffn).op for block in config.stack.blocks]
    plain = {layer: op for layer, op in enumerate(ops) if isinstance(op, FeedForwardConfig)}
    sparse = next((op for op in ops if isinstance(op, ExpertsConfig)), None)
    dense = write_feed_forward(next(iter(plain.values()))) if plain else {}
    return {
        **write_decoder(config, ARCHITECTURES),
        **(_write_experts(sparse) if sparse is not None else {"num_local_experts": 0}),
        **dense,
        "head_dim": attention.d_head,
        "attention_bias": attention.bias.q,
        "use_sliding_window": window is not None,
        "sliding_window": window,
        "mlp_only_layers": list(plain),
        "decoder_sparse_step": 1,
    }


def _write_experts(op: ExpertsConfig) -> dict[str, Any]:
    return {
        "hidden_act": published_activation(a(str, op.expert.activation)),
        "moe_intermediate_size": op.expert.d_ff,
        "num_local_experts": op.n_experts,
        "num_experts_per_tok": op.n_chosen,
        "norm_topk_prob": op.router.renormalise,
        "router_aux_loss_coef": op.router.balance,
    }


EXPERTS = (
    Row(f"{LAYER}mlp.gate.weight", "layers.{l}.ffn.router.weight"),
    *experts(f"{LAYER}mlp.experts.{{e}}", gate="gate_proj", up="up_proj", down="down_proj"),
)

FAMILY = Family(
    model_type="qwen3_moe",
    architectures=ARCHITECTURES,
    config=read,
    to_hf=write,
    weights=Layout((*LLAMA, *EXPERTS), prefix="model."),
    # Without plain layers, intermediate_size is nobody's.
    ignores=frozenset({"output_router_logits", "max_window_layers", "intermediate_size"}),
)
