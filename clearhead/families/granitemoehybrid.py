"""Granite 4 (IBM 2025): Mamba-2 and a little attention, experts beside a shared feed-forward, four multipliers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    ExpertsConfig,
    FeedForwardConfig,
    Mamba2Config,
    NormConfig,
    RotaryConfig,
    RouterConfig,
    SublayerConfig,
    TokenHeadConfig,
    TransformerConfig,
)
from clearhead.families.common import a, whole
from clearhead.families.decoders import architectures, read_attention, read_biases, read_decoder, read_feed_forward
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import ATTENTION, EMBEDDING, ENDS, LAYER, PRE_NORMS, rows
from clearhead.families.rope import read_rotary, write_rotary
from clearhead.families.row_ops import Concat
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

ARCHITECTURES = architectures("GraniteMoeHybrid")
KINDS = {FULL: FULL, LINEAR: LINEAR, "attention": FULL, "mamba": LINEAR}
"""What layers are called, today and in the first release."""


def read(r: Reader) -> TransformerConfig:
    r.assume(
        vocab_size=32000,
        hidden_size=4096,
        intermediate_size=11008,
        num_hidden_layers=32,
        num_attention_heads=32,
        max_position_embeddings=2048,
        rms_norm_eps=1e-6,
    )
    r.expect("normalization_function", "rmsnorm")
    norm, residual = NormConfig(eps=r.get("rms_norm_eps")), float(r.get("residual_multiplier", 1.0))
    n_layers, ffn = r.get("num_hidden_layers"), _read_ffn(r)
    named = r.get("layer_types", r.get("layers_block_type", [LINEAR] * n_layers))
    r.expect_list("layer_types", named, n_layers, tuple(KINDS))
    activation = ffn.expert.activation if isinstance(ffn, ExpertsConfig) else ffn.activation
    kinds = [KINDS[kind] for kind in named]
    ops = read_mixers(kinds, lambda: _read_attention(r), lambda: read_mamba2(r, activation, norm))
    sublayer = SublayerConfig(op=ffn, pre=norm, scale=residual)
    blocks = [BlockConfig(mixer=replace(sublayer, op=op), ffn=sublayer) for op in ops]
    return read_decoder(
        r,
        blocks,
        norm,
        ids=(1, 2, None),
        embed_scale=float(r.get("embedding_multiplier", 1.0)),
        head=TokenHeadConfig(tie=r.get("tie_word_embeddings", False), scale=1.0 / r.get("logits_scaling", 1.0)),
    )


def _read_attention(r: Reader) -> AttentionConfig:
    r.expect("position_embedding_type", None, "nope", "rope")
    rotates = r.get("position_embedding_type") == "rope"
    positions = read_rotary(r, r.get("max_position_embeddings")) if rotates else None
    attention = replace(read_attention(r, RotaryConfig()), bias=read_biases(r), positions=positions)
    return replace(attention, scores=replace(attention.scores, scale=float(r.get("attention_multiplier", 1.0))))


def _read_ffn(r: Reader) -> ExpertsConfig | FeedForwardConfig:
    expert = read_feed_forward(r)
    shared = replace(expert, d_ff=r.get("shared_intermediate_size", 1024))
    n_experts = r.get("num_local_experts", 8)
    if n_experts == 0:
        return shared
    router = RouterConfig(score="topk_softmax", balance=r.get("router_aux_loss_coef", 0.001))
    n_chosen = r.get("num_experts_per_tok", 2)
    return ExpertsConfig(n_experts=n_experts, n_chosen=n_chosen, expert=expert, router=router, shared=shared)


def write(config: TransformerConfig) -> dict[str, Any]:
    attention, scan, kinds = mixers(config)
    block, head = config.stack.blocks[0], config.heads.tokens
    ffn = a(SublayerConfig, block.ffn).op
    said: dict[str, Any] = {"layer_types": kinds}
    if attention is not None:
        said |= {"attention_bias": attention.bias.q, "attention_multiplier": attention.scores.scale}
        said |= {"position_embedding_type": None if attention.positions is None else "rope"}
    if attention is not None and attention.positions is not None:
        said |= {"rope_parameters": write_rotary(a(RotaryConfig, attention.positions))}
    if isinstance(ffn, ExpertsConfig):
        said |= {"num_experts_per_tok": ffn.n_chosen, "router_aux_loss_coef": ffn.router.balance}
    return {
        **write_hybrid(config, ARCHITECTURES),
        **({} if scan is None else write_mamba2(a(Mamba2Config, scan), config.d_model)),
        **said,
        "num_local_experts": ffn.n_experts if isinstance(ffn, ExpertsConfig) else 0,
        "shared_intermediate_size": a(FeedForwardConfig, ffn.shared if isinstance(ffn, ExpertsConfig) else ffn).d_ff,
        "embedding_multiplier": config.stack.embed.scale,
        "residual_multiplier": block.mixer.scale,
        "logits_scaling": 1.0 if head is None else whole(1.0 / head.scale),
    }


def _mlp(ours: str, layer: str) -> tuple[Row, ...]:
    """The feed-forward that every layer has. `layer` is the letter that counts layers: models without experts have it
    under another name, so it has rows of its own.
    """
    file, here = f"model.layers.{{{layer}}}.shared_mlp.", f"layers.{{{layer}}}.{ours}."
    return (
        Row(file + "input_linear.weight", (here + "gate_proj.weight", here + "up_proj.weight"), Concat()),
        Row(file + "output_linear.weight", here + "down_proj.weight"),
    )


MOE = LAYER + "block_sparse_moe."
FEED_FORWARDS = (
    Row(MOE + "input_linear.weight", ("layers.{l}.ffn.gate_proj", "layers.{l}.ffn.up_proj"), Concat(dim=1)),
    Row(MOE + "output_linear.weight", "layers.{l}.ffn.down_proj"),
    Row(MOE + "router.layer.weight", "layers.{l}.ffn.router.weight"),
    *_mlp("ffn.shared", "l"),
    *_mlp("ffn", "m"),
)

FAMILY = Family(
    model_type="granitemoehybrid",
    architectures=ARCHITECTURES,
    config=read,
    to_hf=write,
    weights=Layout(
        (*EMBEDDING, *rows(LAYER, PRE_NORMS | ATTENTION), *MAMBA2_ROWS, *FEED_FORWARDS, *ENDS), prefix="model."
    ),
    # Of a kind of part that a model has none of, nothing is read.
    ignores=TRAINING | ATTENTION_KEYS | SCAN_KEYS | {"router_aux_loss_coef", "num_experts_per_tok", "init_method"},
)
