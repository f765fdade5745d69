"""Mamba-2 (Dao and Gu 2024): one decay a head, heads in groups."""

from __future__ import annotations

from typing import Any

from clearhead.config import Mamba2Config, NormConfig, TransformerConfig
from clearhead.errors import ClearheadError
from clearhead.families.common import a
from clearhead.families.decoders import architectures
from clearhead.families.family import Family, Reader
from clearhead.families.mamba import ENDS, IGNORES, LAYER, LEGACY, read_conv, read_stack, write_stack
from clearhead.families.scans import read_dt_limit, scan_rows, write_dt_limit
from clearhead.families.weights import Layout

ARCHITECTURES = architectures("Mamba2")


def read(r: Reader) -> TransformerConfig:
    r.assume(
        hidden_size=4096, num_hidden_layers=64, vocab_size=32768, layer_norm_epsilon=1e-5, tie_word_embeddings=False
    )
    op = Mamba2Config(
        n_heads=r.get("num_heads", 128),
        d_head=r.get("head_dim", 64),
        d_state=r.get("state_size", 128),
        n_groups=r.get("n_groups", 8),
        norm=NormConfig(eps=r.get("layer_norm_epsilon")),
        conv=read_conv(r),
        dt_limit=read_dt_limit(r),
        bias=r.get("use_bias", False),
    )
    if op.n_heads * op.d_head != (d_inner := int(r.get("expand", 2) * r.get("hidden_size"))):
        raise ClearheadError(f"num_heads x head_dim is {op.n_heads * op.d_head} and expand x hidden_size {d_inner}")
    return read_stack(r, op, ids=(0, 2, 1))


def write(config: TransformerConfig) -> dict[str, Any]:
    op = a(Mamba2Config, config.stack.blocks[0].mixer.op)
    return {
        **write_stack(config, op, op.n_heads * op.d_head, ARCHITECTURES),
        "num_heads": op.n_heads,
        "head_dim": op.d_head,
        "n_groups": op.n_groups,
        "time_step_limit": write_dt_limit(op.dt_limit),
    }


FAMILY = Family(
    model_type="mamba2",
    architectures=ARCHITECTURES,
    config=read,
    to_hf=write,
    weights=Layout((*ENDS, *scan_rows(LAYER + "mixer.", (("norm", "norm"),))), prefix="backbone.", legacy=LEGACY),
    # The gate comes before the norm whatever norm_before_gate says, in the published code too.
    ignores=IGNORES | {"chunk_size", "norm_before_gate", "time_step_rank", "intermediate_size"},
)
