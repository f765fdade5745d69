"""Whether others use this machine's processors: a time that is measured beside them says nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

from clearhead.errors import ClearheadError

QUIET = 0.10
"""The share of the machine's processors that others may use while something is measured."""


def foreign_load(seconds: float = 1.0) -> float | None:
    """The share of all processors that processes other than this one and its children use, over `seconds`; None where
    the system doesn't tell (it is Linux that does).
    """
    try:
        busy_before, total_before, own_before = _ticks()
        time.sleep(seconds)
        busy, total, own = _ticks()
    except (OSError, ValueError):
        return None
    return max(0.0, (busy - busy_before) - (own - own_before)) / max(1.0, total - total_before)


def require_quiet() -> None:
    """Refuse a machine that others use.

    Raises:
        ClearheadError: they use more than `QUIET` of its processors.
    """
    load = foreign_load()
    if load is not None and load > QUIET:
        raise ClearheadError(
            f"others use {load:.0%} of this machine's processors, more than {QUIET:.0%}, and what is measured now "
            "would say little; wait for them, or measure all the same (--force)"
        )


def _ticks() -> tuple[float, float, float]:
    """Busy and total ticks of all processors since the start, and those this process and its ended children used."""
    numbers = [int(number) for number in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    idle = numbers[3] + numbers[4]
    own = sum(os.times()[:4]) * os.sysconf("SC_CLK_TCK")
    return float(sum(numbers) - idle), float(sum(numbers)), own
