"""Mamba (Gu and Dao 2023): state-space layers and nothing else."""

from __future__ import annotations

from typing import Any

from clearhead.config import (
    BlockConfig,
    ConvConfig,
    EmbedConfig,
    MambaConfig,
    NormConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.families.common import (
    ACTIVATION_NAMES,
    a,
    published_activation,
    read_heads,
    read_ids,
    whole,
    write_heads,
    write_ids,
)
from clearhead.families.decoders import architectures
from clearhead.families.family import Family, Reader
from clearhead.families.layouts import TIED
from clearhead.families.scans import rank, scan_rows
from clearhead.families.weights import Layout, Row

ARCHITECTURES = architectures("Mamba")


def read(r: Reader) -> TransformerConfig:
    r.assume(hidden_size=768, num_hidden_layers=32, vocab_size=50280, layer_norm_epsilon=1e-5, tie_word_embeddings=True)
    d_model = r.get("hidden_size")
    return read_stack(
        r,
        MambaConfig(
            d_inner=r.get("intermediate_size", int(r.get("expand", 2) * d_model)),
            d_state=r.get("state_size", 16),
            dt_rank=rank(r, "time_step_rank", d_model),
            conv=read_conv(r),
            bias=r.get("use_bias", False),
        ),
        ids=(0, 0, 0),
    )


def read_conv(r: Reader) -> ConvConfig:
    return ConvConfig(
        width=r.get("conv_kernel", 4),
        bias=r.get("use_conv_bias", True),
        activation=r.choose("hidden_act", ACTIVATION_NAMES, "silu"),
    )


def read_stack(r: Reader, op: Any, ids: tuple[int, int, int]) -> TransformerConfig:
    """Layers of one kind of scan, without feed-forwards."""
    r.expect("rms_norm", True)
    norm, (bos, eos, pad) = NormConfig(eps=r.get("layer_norm_epsilon")), ids
    return TransformerConfig(
        d_model=r.get("hidden_size"),
        decoder=StackConfig(
            embed=EmbedConfig(front=TokensConfig(vocab_size=r.get("vocab_size"))),
            blocks=(BlockConfig(mixer=SublayerConfig(op=op, pre=norm)),) * r.get("num_hidden_layers"),
            norm=norm,
        ),
        heads=read_heads(r, TokenHeadConfig(tie=r.get("tie_word_embeddings"))),
        ids=read_ids(r, bos=bos, eos=eos, pad=pad),
    )


def write(config: TransformerConfig) -> dict[str, Any]:
    op = a(MambaConfig, config.stack.blocks[0].mixer.op)
    return {
        **write_stack(config, op, op.d_inner, ARCHITECTURES),
        "intermediate_size": op.d_inner,
        "time_step_rank": op.dt_rank,
    }


def write_stack(config: TransformerConfig, op: Any, d_inner: int, architectures: tuple[str, ...]) -> dict[str, Any]:
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": len(config.stack.blocks),
        "layer_norm_epsilon": a(NormConfig, config.stack.norm).eps,
        "expand": whole(d_inner / config.d_model),
        "state_size": op.d_state,
        "conv_kernel": op.conv.width,
        "use_conv_bias": op.conv.bias,
        "hidden_act": published_activation(op.conv.activation),
        "use_bias": op.bias,
        **write_heads(config.heads, architectures),
        **write_ids(config.ids),
    }


LAYER = "backbone.layers.{l}."
ENDS = (
    Row("backbone.embeddings.weight", "embed.tokens.weight"),
    Row(LAYER + "norm.weight", "layers.{l}.mixer_norm.pre.weight"),
    Row("backbone.norm_f.weight", "norm.weight"),
    Row("lm_head.weight", "head.weight", TIED),
)
LEGACY = {"embedding.weight": "embeddings.weight"}
# How training starts; how sums are rounded; what the first release repeats in its own words.
IGNORES = frozenset(
    "time_step_min time_step_max time_step_floor time_step_scale time_step_init_scheme rescale_prenorm_residual "
    "residual_in_fp32 use_mambapy use_associative_scan fused_add_norm pad_vocab_size_multiple ssm_cfg d_model d_inner "
    "n_layer".split()
)

FAMILY = Family(
    model_type="mamba",
    architectures=ARCHITECTURES,
    config=read,
    to_hf=write,
    weights=Layout((*ENDS, *scan_rows(LAYER + "mixer.")), prefix="backbone.", legacy=LEGACY),
    ignores=IGNORES,
)
