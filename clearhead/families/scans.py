"""State-space mixers in published configs and files, and the order of mixers in hybrids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from clearhead.config import (
    AttentionConfig,
    ConvConfig,
    ExpertsConfig,
    FeedForwardConfig,
    Mamba2Config,
    MambaConfig,
    NormConfig,
    SublayerConfig,
    TransformerConfig,
)
from clearhead.errors import ClearheadError
from clearhead.families.common import a, whole, write_heads, write_ids
from clearhead.families.decoders import write_feed_forward
from clearhead.families.family import Reader
from clearhead.families.layouts import rows
from clearhead.families.weights import Row

FULL, LINEAR = "full_attention", "linear_attention"
TRAINING = frozenset(
    "mamba_chunk_size time_step_min time_step_max time_step_floor rescale_prenorm_residual num_logits_to_keep "
    "output_router_logits".split()
)
"""How a scan is cut up, how weights start, what is given out: nothing that changes a pass."""
ATTENTION_KEYS = frozenset(
    "num_attention_heads num_key_value_heads attention_bias attention_dropout attention_multiplier head_dim "
    "position_embedding_type rope_theta rope_scaling rope_parameters partial_rotary_factor".split()
)
SCAN_KEYS = frozenset(
    "mamba_n_heads mamba_d_head mamba_d_state mamba_n_groups mamba_expand mamba_d_conv mamba_conv_bias "
    "mamba_proj_bias mamba_dt_rank time_step_limit".split()
)
"""What says nothing in a hybrid that has no layer of the kind."""


def scan_rows(theirs: str, norms: tuple[tuple[str, str], ...] = (), ours: str = "layers.{l}.mixer.") -> tuple[Row, ...]:
    """Rows of a state-space mixer of either kind."""
    names = {"in_proj": "in_proj", "conv1d": "conv", "x_proj": "x_proj", "dt_proj": "dt_proj", "out_proj": "out_proj"}
    bare = tuple(Row(theirs + name, ours + name) for name in ("A_log", "D", "dt_bias"))
    return (*rows(theirs, names | dict(norms), ours=ours), *bare)


MAMBA2_ROWS = scan_rows("model.layers.{l}.mamba.", (("norm", "norm"),))


def read_dt_limit(r: Reader) -> tuple[float, float]:
    """The least and the greatest step size; JSON has no word for infinity, so it is written as a mapping."""
    low, high = (x["__float__"] if isinstance(x, dict) else x for x in r.get("time_step_limit", [0.0, "inf"]))
    return float(low), float(high)


def write_dt_limit(limit: tuple[float, float]) -> list[Any]:
    return [{"__float__": "Infinity"} if x == float("inf") else x for x in limit]


def rank(r: Reader, name: str, d_model: int) -> int:
    """The width that step sizes are made from: a sixteenth of the stream's, if the config leaves it open."""
    value = r.raw.get(name, "auto")
    r.read.add(name)
    return -(-d_model // 16) if value in ("auto", None) else int(value)


def read_mamba2(r: Reader, activation: Any, norm: NormConfig) -> Mamba2Config:
    """Mamba-2 in the words of hybrids. `activation` is the convolution's."""
    d_inner, n_heads = int(r.get("mamba_expand", 2) * r.get("hidden_size")), r.get("mamba_n_heads", 128)
    d_head = r.raw.get("mamba_d_head", "auto")
    r.read.add("mamba_d_head")
    if n_heads * (d_inner // n_heads if d_head in ("auto", None) else int(d_head)) != d_inner:
        raise ClearheadError(f"mamba_n_heads is {n_heads} and mamba_d_head {d_head}; together they must be {d_inner}")
    return Mamba2Config(
        n_heads=n_heads,
        d_head=d_inner // n_heads,
        d_state=r.get("mamba_d_state", 256),
        n_groups=r.get("mamba_n_groups", 1),
        norm=norm,
        conv=ConvConfig(width=r.get("mamba_d_conv", 4), bias=r.get("mamba_conv_bias", True), activation=activation),
        dt_limit=read_dt_limit(r),
        bias=r.get("mamba_proj_bias", False),
    )


def write_mamba2(op: Mamba2Config, d_model: int) -> dict[str, Any]:
    return {
        "mamba_n_heads": op.n_heads,
        "mamba_d_head": op.d_head,
        "mamba_d_state": op.d_state,
        "mamba_n_groups": op.n_groups,
        "mamba_expand": whole(op.n_heads * op.d_head / d_model),
        "mamba_d_conv": op.conv.width,
        "mamba_conv_bias": op.conv.bias,
        "mamba_proj_bias": op.bias,
        "time_step_limit": write_dt_limit(op.dt_limit),
    }


Scan = MambaConfig | Mamba2Config


def read_mixers(
    kinds: Sequence[str], attention: Callable[[], AttentionConfig], scan: Callable[[], Scan]
) -> list[AttentionConfig | Scan]:
    """The mixer of every layer; of a kind that no layer has, nothing is read."""
    read: dict[str, Callable[[], AttentionConfig | Scan]] = {FULL: attention, LINEAR: scan}
    ops = {kind: read[kind]() for kind in set(kinds)}
    return [ops[kind] for kind in kinds]


def mixers(config: TransformerConfig) -> tuple[AttentionConfig | None, Scan | None, list[str]]:
    """The attention and the scan of a hybrid, where it has them, and which of the two each layer has."""
    ops = [block.mixer.op for block in config.stack.blocks]
    attention = next((op for op in ops if isinstance(op, AttentionConfig)), None)
    scan = next((op for op in ops if isinstance(op, MambaConfig | Mamba2Config)), None)
    return attention, scan, [FULL if isinstance(op, AttentionConfig) else LINEAR for op in ops]


def every(chosen: Sequence[bool]) -> tuple[int, int]:
    """(period, offset) of layers that come once a period."""
    places = [layer for layer, yes in enumerate(chosen) if yes]
    match places:
        case []:
            return len(chosen) + 1, len(chosen)
        case [only]:
            return max(len(chosen), only + 1), only
    return places[1] - places[0], places[0]


def write_hybrid(config: TransformerConfig, architectures: tuple[str, ...]) -> dict[str, Any]:
    """What hybrids write beside their mixers; of a kind of layer that there is none of, nothing is said."""
    stack, (attention, _, _) = config.stack, mixers(config)
    ffn = a(SublayerConfig, stack.blocks[0].ffn).op
    said: dict[str, Any] = {}
    if attention is not None:
        own_width = attention.d_head * attention.n_heads != config.d_model
        said = {
            "num_attention_heads": attention.n_heads,
            "num_key_value_heads": attention.n_kv_heads,
            "attention_dropout": attention.scores.dropout,
            **({"head_dim": attention.d_head} if own_width else {}),
        }
    return {
        "vocab_size": config.vocab_size,
        "hidden_size": config.d_model,
        "num_hidden_layers": len(stack.blocks),
        **said,
        **write_feed_forward(ffn.expert if isinstance(ffn, ExpertsConfig) else a(FeedForwardConfig, ffn)),
        "max_position_embeddings": config.context,
        "rms_norm_eps": a(NormConfig, stack.norm).eps,
        **write_heads(config.heads, architectures),
        **write_ids(config.ids),
    }
