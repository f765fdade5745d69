"""How long things take."""

from __future__ import annotations

import time
from collections.abc import Callable

ENOUGH = 0.5
"""Seconds after which no more is tried."""


def seconds_of(run: Callable[[], object], repeats: int) -> list[float]:
    """How long each of so many runs takes, after one to warm up; fewer where they take long."""
    run()
    found, began = [], time.perf_counter()
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        found.append(time.perf_counter() - start)
        if time.perf_counter() - began > ENOUGH:
            break
    return found
