"""The rotary tables of one pass, from a config."""

from __future__ import annotations

import torch
from torch import Tensor

from clearhead.config import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    RotaryConfig,
    YarnScaling,
)
from clearhead.forward import Pass
from clearhead.ops import positions as ops
from clearhead.ops import step

STRETCH = 64
"""Tables are made for so many tokens ahead where a text is written: those of one token take 48 us."""


def frequencies(config: RotaryConfig, d_head: int, lengths: int | Tensor) -> tuple[Tensor, float]:
    """Radians a position for each pair, and what the tables are multiplied by.

    Shape (K/2,), or one row a text where the scaling depends on its length and `lengths` is a tensor. Float32.
    """
    d = int(d_head * config.fraction)
    plain = ops.frequencies(d, config.base)
    match config.scaling:
        case None:
            return plain, 1.0
        case LinearScaling(factor=factor):
            return plain / factor, 1.0
        case DynamicScaling() as c:
            return ops.dynamic_frequencies(d, config.base, c.factor, c.trained_length, lengths), 1.0
        case Llama3Scaling() as c:
            return ops.llama3_frequencies(plain, c.factor, c.low, c.high, c.trained_length), 1.0
        case YarnScaling() as c:
            gain = c.attention_factor
            if gain is None:
                gain = ops.yarn_attention_factor(c.factor, c.mscale, c.mscale_all_dim)
            scaled = ops.yarn_frequencies(
                d, config.base, c.factor, c.trained_length, c.beta_fast, c.beta_slow, c.truncate
            )
            return scaled, gain
        case LongRopeScaling() as c:
            gain = c.attention_factor
            if gain is None:
                gain = ops.longrope_attention_factor(c.factor, c.trained_length)
            short, long = plain / torch.tensor(c.short), plain / torch.tensor(c.long)
            if isinstance(lengths, int):
                return (long if lengths > c.trained_length else short), gain
            return torch.where(lengths[..., None].cpu() > c.trained_length, long, short), gain
    raise AssertionError(f"no frequencies are defined for {config.scaling}")


def same_frequencies(config: RotaryConfig, before: int | Tensor, after: int | Tensor) -> bool:
    """Whether texts of these lengths are rotated alike, so that what was computed of the shorter still holds."""
    if not config.depends_on_length:
        return True
    a, b = torch.as_tensor(before), torch.as_tensor(after)
    match config.scaling:
        case DynamicScaling(trained_length=trained):
            same = a.clamp(min=trained) == b.clamp(min=trained)
        case LongRopeScaling(trained_length=trained):
            same = (a > trained) == (b > trained)
        case _:
            raise AssertionError(f"{config.scaling} does not depend on the length")
    return bool((same | (a == 0)).all())


def rotary_tables(config: RotaryConfig, d_head: int, p: Pass, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Cosines and signed sines for this pass's tokens, (1 or B, 1, T, R), computed in float32 and rounded once."""

    def make(position_BT: Tensor) -> tuple[Tensor, Tensor]:
        frequency, gain = frequencies(config, d_head, p.places.lengths)
        cos, sin = ops.rotary_tables(position_BT, frequency, config.interleaved, gain)
        return cos[:, None].to(dtype), sin[:, None].to(dtype)

    def tables() -> tuple[Tensor, Tensor]:
        state, span = p.state, p.places.positions.span
        depends = config.depends_on_length or torch.compiler.is_compiling()
        if state is None or span is None or len(p.positions) > 1 or depends:
            return make(p.places.positions.rows(p.device).clamp(min=0))
        stretch, at = divmod(span[0], STRETCH)
        first = stretch * STRETCH
        key = ("rotary", config, d_head, dtype, p.device)
        cos, sin = state.once(key, stretch, lambda: make(torch.arange(first, first + STRETCH, device=p.device)[None]))
        return cos[:, :, at : at + 1], sin[:, :, at : at + 1]

    return p.once(("rotary", config, d_head, dtype), tables)


def turned(x_BHTK: Tensor, tables: tuple[Tensor, Tensor], interleaved: bool) -> Tensor:
    """Queries or keys, rotated by this pass's tables."""
    if x_BHTK.shape[2] == 1:  # a token a time comes by here
        own = step.kernels(x_BHTK)
        y_BH1K = None if own is None else own.rotate(x_BHTK, *tables, interleaved)
        if y_BH1K is not None:
            return y_BH1K
    return ops.rotate(x_BHTK, *tables, interleaved)
