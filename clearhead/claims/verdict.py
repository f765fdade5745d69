"""From numbers to a verdict: each number with its interval over seeds, held against its mark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from clearhead.claims.claim import Mark, Measured, Number
from clearhead.errors import ClearheadError

Verdict = Literal["holds", "does not hold", "cannot tell at this size"]
HOLDS: Verdict = "holds"
FAILS: Verdict = "does not hold"
OPEN: Verdict = "cannot tell at this size"

T_95 = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26)
"""Student's t for a two-sided 95 % interval, with 1, 2, ... degrees of freedom."""


@dataclass(frozen=True)
class Estimate:
    """A number and its 95 % interval, over seeds or within the one there was; equal ends where there is neither."""

    mean: float
    low: float
    high: float


def estimate(numbers: Sequence[Number]) -> Estimate:
    """Over seeds: the mean, and Student's interval around it. Of one seed, the interval that it brought itself."""
    means = [number[0] if isinstance(number, tuple) else number for number in numbers]
    if len(numbers) == 1:
        only = numbers[0]
        return Estimate(*only) if isinstance(only, tuple) else Estimate(only, only, only)
    mean = sum(means) / len(means)
    if not all(math.isfinite(x) for x in means):
        return Estimate(mean, mean, mean)
    spread = math.sqrt(sum((x - mean) ** 2 for x in means) / (len(means) - 1))
    half = _t_95(len(means) - 1) * spread / math.sqrt(len(means))
    return Estimate(mean, mean - half, mean + half)


def _t_95(degrees: int) -> float:
    """Beyond the table, the normal distribution's 1.96 with what its expansion adds (within 0.2 %)."""
    return T_95[degrees - 1] if degrees <= len(T_95) else 1.96 + 2.37 / degrees + 2.82 / degrees**2


def estimates(results: Sequence[Measured]) -> dict[str, Estimate]:
    """Of every number that all seeds gave."""
    by_all = [name for name in results[0].values if all(name in result.values for result in results)]
    return {name: estimate([result.values[name] for result in results]) for name in by_all}


def held(mark: Mark, numbers: Mapping[str, Estimate]) -> Verdict:
    """One mark: it holds where the whole interval is on the right side of it, and fails where all is on the wrong."""
    if mark.of not in numbers:
        raise ClearheadError(f"a mark is set for {mark.of!r}, which was not measured; there are {', '.join(numbers)}")
    number = numbers[mark.of]
    if math.isnan(number.mean):
        return FAILS
    low, high = (-math.inf if mark.low is None else mark.low), (math.inf if mark.high is None else mark.high)
    if low <= number.low and number.high <= high:
        return HOLDS
    if number.high < low or number.low > high:
        return FAILS
    return OPEN


def counts(mark: Mark, *, quick: bool) -> bool:
    """Whether a mark counts in this kind of run."""
    return mark.at in ("both", "quick" if quick else "full")


def judge(marks: Sequence[Mark], results: Sequence[Measured], *, quick: bool) -> Verdict:
    """All marks that count in this kind of run: it holds where all do, and does not where one does not."""
    numbers = estimates(results)
    verdicts = [held(mark, numbers) for mark in marks if counts(mark, quick=quick)]
    return FAILS if FAILS in verdicts else OPEN if OPEN in verdicts else HOLDS
