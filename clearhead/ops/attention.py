"""Attention in the order the papers give it: score, mask, normalise, mix (Vaswani 2017, section 3.2.1, equation 1).

This is the reference: every matrix is made in full, in float32 at least, and every faster backend is held to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from clearhead.ops.biases import Bias
from clearhead.ops.masks import ALL, BoundMask

MINUS_INFINITY = float("-inf")


@dataclass(frozen=True)
class Trace:
    """Every step of one attention: the masked scores, the pattern (rows sum to one, or to zero), and its mix."""

    scores_BHTS: Float[Tensor, "B H T S"]
    pattern_BHTS: Float[Tensor, "B H T S"]
    z_BHTV: Float[Tensor, "B H T V"]


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The precision scores and sums are kept in: float32 for the half types, the type itself otherwise."""
    return torch.promote_types(dtype, torch.float32)


def score(q_BHTK: Float[Tensor, "B H T K"], k_BGSK: Float[Tensor, "B G S K"]) -> Float[Tensor, "B H T S"]:
    """The dot product of every query with every key, in float32 at least; H/G query heads share a key head."""
    dtype = accumulation_dtype(q_BHTK.dtype)
    return _per_group(q_BHTK.to(dtype), k_BGSK.to(dtype).mT)


def mask_scores(
    scores_BHTS: Float[Tensor, "B H T S"],
    mask: BoundMask,
    *,
    scale: float,
    bias: Bias | None = None,
    softcap: float | None = None,
) -> Float[Tensor, "B H T S"]:
    """Scale; bend into (-softcap, softcap); add the bias; then minus infinity where the query may not look."""
    scores_BHTS = scores_BHTS * scale
    if softcap is not None:
        scores_BHTS = softcap * torch.tanh(scores_BHTS / softcap)
    if bias is not None:
        scores_BHTS = scores_BHTS + bias_term(bias, mask, scores_BHTS.shape[1]).to(scores_BHTS.dtype)
    if mask.sees_all:
        return scores_BHTS
    return scores_BHTS.masked_fill(~mask.dense, MINUS_INFINITY)


def bias_term(
    bias: Bias, mask: BoundMask, n_heads: int, q_slots: slice = ALL, k_slots: slice = ALL, rows: slice = ALL
) -> Float[Tensor, "b h t s"]:
    """The bias of a tile of the scores, (B or 1, H, t, s); of the whole matrix when no slots are named."""
    head = torch.arange(n_heads, device=mask.device)[None, :, None, None]
    q_pos, k_pos = mask.grid(q_slots, k_slots, rows)
    return bias.widened().term(head, q_pos, k_pos)


def normalise(
    scores_BHTS: Float[Tensor, "B H T S"], sinks_H: Float[Tensor, "H"] | None = None
) -> Float[Tensor, "B H T S"]:
    """The softmax over keys. A row of minus infinities becomes zeros, with zero gradient, not NaN.

    A sink is one more score per head, that of a key with nothing to give: its share of the row goes nowhere.
    """
    if sinks_H is not None:
        sink_BHT1 = sinks_H.to(scores_BHTS.dtype)[:, None, None].expand(*scores_BHTS.shape[:3], 1)
        return torch.softmax(torch.cat([scores_BHTS, sink_BHT1], dim=-1), dim=-1)[..., :-1]
    if scores_BHTS.shape[-1] == 0:
        return scores_BHTS
    # Softmax of such a row is 0 / 0; it is taken of zeros instead, and its answer wiped: no NaN arises, to be spread.
    nothing_BHT1 = scores_BHTS.detach().amax(dim=-1, keepdim=True) == MINUS_INFINITY
    pattern_BHTS = torch.softmax(scores_BHTS.masked_fill(nothing_BHT1, 0.0), dim=-1)
    return pattern_BHTS.masked_fill(nothing_BHT1, 0.0)


def mix(pattern_BHTS: Float[Tensor, "B H T S"], v_BGSV: Float[Tensor, "B G S V"]) -> Float[Tensor, "B H T V"]:
    """The values summed with the pattern as weights, rounded to the values' dtype."""
    return _per_group(pattern_BHTS, v_BGSV.to(pattern_BHTS.dtype)).to(v_BGSV.dtype)


def traced(
    q_BHTK: Float[Tensor, "B H T K"],
    k_BGSK: Float[Tensor, "B G S K"],
    v_BGSV: Float[Tensor, "B G S V"],
    mask: BoundMask,
    *,
    scale: float,
    bias: Bias | None = None,
    softcap: float | None = None,
    sinks_H: Float[Tensor, "H"] | None = None,
    dropout: float = 0.0,
) -> Trace:
    """The four steps, each kept. The pattern shown is the one before dropout."""
    scores_BHTS = mask_scores(score(q_BHTK, k_BGSK), mask, scale=scale, bias=bias, softcap=softcap)
    pattern_BHTS = normalise(scores_BHTS, sinks_H)
    return Trace(scores_BHTS, pattern_BHTS, mix(_dropped(pattern_BHTS, dropout), v_BGSV))


def attention(
    q_BHTK: Float[Tensor, "B H T K"],
    k_BGSK: Float[Tensor, "B G S K"],
    v_BGSV: Float[Tensor, "B G S V"],
    mask: BoundMask,
    *,
    scale: float,
    bias: Bias | None = None,
    softcap: float | None = None,
    sinks_H: Float[Tensor, "H"] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "B H T V"]:
    """The same, keeping only the mix: the backend "reference"."""
    # One name for all steps, so that each matrix is let go as the next is made.
    cells_BHTS = mask_scores(score(q_BHTK, k_BGSK), mask, scale=scale, bias=bias, softcap=softcap)
    cells_BHTS = normalise(cells_BHTS, sinks_H)
    return mix(_dropped(cells_BHTS, dropout), v_BGSV)


def _dropped(pattern_BHTS: Tensor, dropout: float) -> Tensor:
    return F.dropout(pattern_BHTS, dropout, training=True) if dropout > 0 else pattern_BHTS


def _per_group(a_BHXY: Tensor, b_BGYZ: Tensor) -> Tensor:
    """Matrix products in which H/G neighbouring heads of `a` share one of `b`: one tall product, `b` not copied."""
    n_rows, n_heads, height, width = a_BHXY.shape
    n_groups = b_BGYZ.shape[1]
    tall_BGRY = a_BHXY.reshape(n_rows, n_groups, n_heads // n_groups * height, width)
    return torch.matmul(tall_BGRY, b_BGYZ).reshape(n_rows, n_heads, height, b_BGYZ.shape[-1])
