"""Attention that can be looked into: a fast kernel for the output, the reference beside it for whoever looks."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from clearhead.forward import Pass
from clearhead.ops import attention as steps
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
        attend_in_steps(q_BHTK, k_BGSK, v_BGSV, mask, scoring, path, p)
    return z_BHTV


def attend_fast(q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, mask: BoundMask, scoring: Scoring, p: Pass) -> Tensor:
    """By the kernel that the pass asks for."""
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
