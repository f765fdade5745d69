"""Attention that can be looked into: a fast kernel for the output, the reference beside it for whoever looks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.forward import Pass
from clearhead.ops import attention as steps
from clearhead.ops import step
from clearhead.ops.attention_sdpa import additive_mask
from clearhead.ops.backends import attend
from clearhead.ops.biases import Bias
from clearhead.ops.masks import BoundMask


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """What happens to q.k before the mix."""

    scale: float
    bias: Bias | None = None
    softcap: float | None = None
    sinks_H: Tensor | None = None
    dropout: float = 0.0

    @property
    def is_plain(self) -> bool:
        """Whether nothing but the scale does."""
        return self.bias is None and self.softcap is None and self.sinks_H is None and self.dropout == 0


def attend_seen(
    q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, mask: BoundMask, scoring: Scoring, path: str, p: Pass
) -> Tensor:
    """The mix of the values, (B, H, T, V). Looking at scores or pattern computes them beside the kernel that gives
    the output, which so keeps every bit; editing them runs the reference alone.
    """
    modes = () if p.taps is None else (p.taps.mode(path, "scores"), p.taps.mode(path, "pattern"))
    if "edit" in modes:
        return attend_in_steps(q_BHTK, k_BGSK, v_BGSV, mask, scoring, path, p)
    z_BHTV = attend_fast(q_BHTK, k_BGSK, v_BGSV, mask, scoring, p)
    if "read" in modes:
        show_steps(q_BHTK, k_BGSK, mask, scoring, path, p)
    return z_BHTV


def attend_fast(q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, mask: BoundMask, scoring: Scoring, p: Pass) -> Tensor:
    """By the kernel that the pass asks for. One query a row that sees all, which is a step of a text, has its own."""
    if p.backend == "auto" and q_BHTK.shape[2] == 1 and scoring.is_plain and mask.sees_all:
        own = step.kernels(q_BHTK)
        z_BH1V = None if own is None else own.attend(q_BHTK, k_BGSK, v_BGSV, scoring.scale)
        if z_BH1V is not None:
            return z_BH1V
    return attend(
        q_BHTK,
        k_BGSK,
        v_BGSV,
        mask,
        backend=p.backend,
        scale=scoring.scale,
        bias=scoring.bias,
        softcap=scoring.softcap,
        sinks_H=scoring.sinks_H,
        dropout=scoring.dropout,
    )


@torch.no_grad()
def show_steps(q_BHTK: Tensor, k_BGSK: Tensor, mask: BoundMask, scoring: Scoring, path: str, p: Pass) -> None:
    """The scores and the pattern for whoever looks, beside the kernel: the reference's to rounding, in fewer sweeps.

    One product scales, adds the mask and masks. 12 heads, 256 tokens, one core: 2.1 ms and not 7.
    """
    assert p.taps is not None
    dtype = steps.accumulation_dtype(q_BHTK.dtype)
    n_heads, n_queries, n_keys = *q_BHTK.shape[1:3], k_BGSK.shape[2]
    q_BHTK, k_BHSK = q_BHTK.to(dtype), k_BGSK.to(dtype).repeat_interleave(n_heads // k_BGSK.shape[1], dim=1)
    added = _added(mask, scoring.bias, n_heads, dtype)
    if added is None or scoring.softcap is not None or added.shape[0] > 1:
        scores_BHTS = (q_BHTK @ k_BHSK.mT).mul_(scoring.scale)
        if scoring.softcap is not None:
            scores_BHTS.div_(scoring.softcap).tanh_().mul_(scoring.softcap)
        if added is not None:
            scores_BHTS.add_(added)
    else:
        q_NTK, k_NSK = q_BHTK.flatten(0, 1), k_BHSK.flatten(0, 1)
        added_NTS = added.expand(len(q_BHTK), n_heads, n_queries, n_keys).flatten(0, 1)
        scores_NTS = torch.baddbmm(added_NTS, q_NTK, k_NSK.mT, alpha=scoring.scale)
        scores_BHTS = scores_NTS.unflatten(0, (-1, n_heads))
    p.tap(path, "scores", scores_BHTS)
    if p.taps.mode(path, "pattern") == "none":
        return
    if scoring.sinks_H is None and _every_row_sees(mask):
        pattern_BHTS = torch.softmax(scores_BHTS, dim=-1)
    else:
        pattern_BHTS = steps.normalise(scores_BHTS, sinks_H=scoring.sinks_H)
    p.tap(path, "pattern", pattern_BHTS)


def _added(mask: BoundMask, bias: Bias | None, n_heads: int, dtype: torch.dtype) -> Tensor | None:
    """What is added to scores, minus infinity where a key is hidden, (B or 1, H or 1, T, S); made once a pass."""
    if bias is not None:
        return additive_mask(mask, bias, n_heads, dtype)
    if mask.sees_all:
        return None
    key = ("added", dtype)
    if key not in mask.kept:
        mask.kept[key] = torch.zeros((), dtype=dtype, device=mask.device).where(mask.dense, steps.MINUS_INFINITY)
    added: Tensor = mask.kept[key]
    return added


def _every_row_sees(mask: BoundMask) -> bool:
    """Whether every query may look at some key, asked once a pass."""
    if mask.sees_all or mask.is_plain_causal:
        return True
    if "every row sees" not in mask.kept:
        mask.kept["every row sees"] = bool(mask.dense.any(dim=-1).all())
    found: bool = mask.kept["every row sees"]
    return found


def attend_in_steps(
    q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, mask: BoundMask, scoring: Scoring, path: str, p: Pass
) -> Tensor:
    """The reference, with a tap after the scores and one after the pattern."""
    scores_BHTS = steps.mask_scores(
        steps.score(q_BHTK, k_BGSK), mask, scale=scoring.scale, bias=scoring.bias, softcap=scoring.softcap
    )
    scores_BHTS = p.tap(path, "scores", scores_BHTS)
    pattern_BHTS = p.tap(path, "pattern", steps.normalise(scores_BHTS, sinks_H=scoring.sinks_H))
    return steps.mix(pattern_BHTS, v_BGSV)
