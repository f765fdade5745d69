"""Numbers, intervals and marks as they are read."""

from __future__ import annotations

import math

import pytest

from clearhead.claims import words
from clearhead.claims.claim import Mark
from clearhead.claims.verdict import FAILS, HOLDS, OPEN, Estimate


@pytest.mark.parametrize(
    ("number", "told"),
    [
        (Estimate(6.61, 6.308, 6.918), "6.61 (6.31 to 6.92) nats"),
        (Estimate(1.0, 0.9999, 1.0001), "1 nats"),
        (Estimate(1.0, 0.99, 1.0), "1 (0.99 to 1) nats"),
        (Estimate(0.0, 0.0, 0.0), "0 nats"),
        (Estimate(2.65e-6, 1.77e-6, 4e-6), "2.65e-6 (1.77e-6 to 4e-6) nats"),
        (Estimate(3.2832e18, 3.2832e18, 3.2832e18), "3.28e18 nats"),
        (Estimate(70553706496, 70553706496, 70553706496), "70,553,706,496 nats"),
        (Estimate(math.nan, math.nan, math.nan), "nan nats"),
        (Estimate(math.inf, math.inf, math.inf), "no end nats"),
        (Estimate(2.0, math.nan, 3.0), "2 (nan to 3) nats"),
    ],
)
def test_a_number(number: Estimate, told: str) -> None:
    assert words.measured(number, "nats") == told


@pytest.mark.parametrize(
    ("low", "high", "told"),
    [
        (0.5, None, "at least 0.5"),
        (None, 1e-12, "at most 1e-12"),
        (None, 0.0001, "at most 0.0001"),
        (0.99999, 1.00001, "0.99999 to 1.00001"),
        (10000.0, None, "at least 10,000"),
        (1000, 1000, "exactly 1,000"),
        (0, 0, "exactly 0"),
        (3.234e18, 3.366e18, "3.234e18 to 3.366e18"),
        (-100, 100, "-100 to 100"),
    ],
)
def test_a_mark(low: float | None, high: float | None, told: str) -> None:
    assert words.mark(Mark(of="x", why="", low=low, high=high)) == told
    assert words.mark(Mark(of="x", why="", low=low, high=high, unit="s")) == f"{told} s"


def test_names_and_signs() -> None:
    assert words.statements((2, 10)) == "S2, S10" and words.name("a_b c") == "a b c"
    assert [words.sign(verdict) for verdict in (HOLDS, FAILS, OPEN)] == ["✓", "✗", "?"]
