"""Where a token stands: sinusoidal tables, rotary tables and the ways to stretch them. All computed in float32."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


def sinusoids(position: Int[Tensor, "*shape"], d: int, layout: str = "interleaved") -> Float[Tensor, "*shape d"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same (Vaswani 2017, section 3.5).

    `layout` "interleaved" is the paper's order; "halves" puts all sines before all cosines.
    """
    angle = position[..., None].float() * frequencies(d, 10000.0).to(position.device)
    pair = torch.stack([angle.sin(), angle.cos()], dim=-1)
    if layout == "halves":
        pair = pair.transpose(-1, -2)
    return pair.flatten(-2)


def resize_grid(
    table_ND: Float[Tensor, "n d"], grid: tuple[int, int], new_grid: tuple[int, int]
) -> Float[Tensor, "m d"]:
    """Positions for a grid of another size. The last rows of the table are `grid`, row by row; those before it stay.

    Bicubic, with the corners of the two pictures aligned and not the centres of their corner patches (Dosovitskiy
    2020, section 3.2, as published models do it). At the same size the table itself.
    """
    if new_grid == grid:
        return table_ND
    down, across = grid
    before_ND, grid_ND = table_ND[: -down * across], table_ND[-down * across :]
    picture_1Dhw = (
        grid_ND.to(torch.promote_types(table_ND.dtype, torch.float32)).unflatten(0, grid).permute(2, 0, 1)[None]
    )
    # By sizes, never by a scale factor: rounding one may lose a row.
    resized_1Dhw = F.interpolate(picture_1Dhw, size=new_grid, mode="bicubic", align_corners=False)
    return torch.cat([before_ND, resized_1Dhw[0].flatten(1).t().to(table_ND.dtype)])


def frequencies(d: int, base: float | Tensor) -> Float[Tensor, "*shape k"]:
    """base^(-2i/d) radians a position for the d/2 pairs (Su 2021, eq. 15). A tensor of bases gives one row each."""
    exponent = torch.arange(0, d, 2, dtype=torch.int64).float() / d
    if isinstance(base, Tensor):
        base = base[..., None]
    return 1.0 / base**exponent


def dynamic_frequencies(
    d: int, base: float, factor: float, trained_length: int, length: int | Int[Tensor, "*shape"]
) -> Float[Tensor, "*shape k"]:
    """The base grows with the text, once it is longer than the trained length ("dynamic NTK").

    base * (factor * length / trained - (factor - 1)) ^ (d / (d - 2)). A tensor of lengths gives one row each.
    """
    if isinstance(length, int):
        longer = torch.tensor(float(max(length, trained_length)), dtype=torch.float32)
    else:
        longer = length.clamp(min=trained_length).float()
    grown = base * ((factor * longer / trained_length) - (factor - 1)) ** (d / (d - 2))
    return frequencies(d, grown)


def llama3_frequencies(
    frequency: Float[Tensor, "k"], factor: float, low: float, high: float, trained_length: int
) -> Float[Tensor, "k"]:
    """Waves longer than trained/low are stretched by `factor`, those below trained/high kept, blended between."""
    turns = trained_length * frequency / (2 * math.pi)
    share_kept = ((turns - low) / (high - low)).clamp(0, 1)
    return (1 - share_kept) * frequency / factor + share_kept * frequency


def yarn_frequencies(
    d: int, base: float, factor: float, trained_length: int, beta_fast: float, beta_slow: float, truncate: bool
) -> Float[Tensor, "k"]:
    """Waves that turn more than `beta_fast` times in the trained length are kept, fewer than `beta_slow` stretched
    by `factor`, and a linear ramp over the pair's index lies between (Peng 2023, section 3.2).
    """

    def index_turning(turns: float) -> float:
        return d * math.log(trained_length / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = index_turning(beta_fast), index_turning(beta_slow)
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, d - 1)
    if low == high:
        high += 0.001
    ramp = (torch.arange(d // 2, dtype=torch.float32) - low) / (high - low)
    share_stretched = ramp.clamp(0, 1)
    kept = frequencies(d, base)
    return kept / factor * share_stretched + kept * (1 - share_stretched)


def yarn_attention_factor(factor: float, mscale: float | None = None, mscale_all_dim: float | None = None) -> float:
    """What YaRN multiplies sines and cosines with: 0.1 ln(factor) + 1, or the ratio of two such (DeepSeek)."""

    if mscale and mscale_all_dim:
        return yarn_gain(factor, mscale) / yarn_gain(factor, mscale_all_dim)
    return yarn_gain(factor)


def yarn_gain(factor: float, mscale: float = 1.0) -> float:
    """0.1 m ln(factor) + 1, or 1 when nothing is stretched (Peng 2023, section 3.4)."""
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def longrope_attention_factor(factor: float, trained_length: int) -> float:
    """sqrt(1 + ln(factor) / ln(trained length)), or 1 when nothing is stretched (Ding 2024)."""
    return 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(trained_length))


def rotary_tables(
    position: Int[Tensor, "*b t"], frequency: Float[Tensor, "*f k"], interleaved: bool, gain: float = 1.0
) -> tuple[Float[Tensor, "*b t d"], Float[Tensor, "*b t d"]]:
    """The cosines, and the sines with the sign each dimension takes, ready for `rotate`; d = 2k.

    Float32: angles in a half dtype are wrong by whole turns at long positions.
    """
    angle = position[..., None].float() * frequency.to(position.device)
    cos, sin = angle.cos() * gain, angle.sin() * gain
    if interleaved:
        return cos.repeat_interleave(2, dim=-1), torch.stack([-sin, sin], dim=-1).flatten(-2)
    return torch.cat([cos, cos], dim=-1), torch.cat([-sin, sin], dim=-1)


def rotate(
    x_BHTK: Float[Tensor, "B H T K"], cos: Float[Tensor, "#B 1 T R"], sin: Float[Tensor, "#B 1 T R"], interleaved: bool
) -> Float[Tensor, "B H T K"]:
    """Turn each pair of the first R dimensions by its angle: (a, b) -> (a cos - b sin, b cos + a sin).

    The rest of a wider head is left as it is. Tables come from `rotary_tables`, in x's dtype.
    """
    width = cos.shape[-1]
    if width < x_BHTK.shape[-1]:
        turned, rest = x_BHTK[..., :width], x_BHTK[..., width:]
        return torch.cat([rotate(turned, cos, sin, interleaved), rest], dim=-1)
    if interleaved:
        partner = x_BHTK.unflatten(-1, (-1, 2)).flip(-1).flatten(-2)
    else:
        partner = x_BHTK.roll(width // 2, dims=-1)
    return torch.addcmul(x_BHTK * cos, partner, sin)
