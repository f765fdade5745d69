"""Intervals against Student's t, and each verdict."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from clearhead.claims.claim import Mark, Measured
from clearhead.claims.verdict import FAILS, HOLDS, OPEN, Estimate, estimate, estimates, held, judge
from clearhead.errors import ClearheadError


@pytest.mark.parametrize("n", [2, 3, 5, 10, 11, 14, 40])
def test_the_interval_over_seeds_is_students(n: int) -> None:
    numbers = [math.sin(i) for i in range(n)]
    found = estimate(numbers)
    low, high = stats.t.interval(0.95, n - 1, loc=found.mean, scale=stats.sem(numbers))
    assert found.mean == pytest.approx(sum(numbers) / n)
    assert (found.low, found.high) == pytest.approx((low, high), rel=3e-3, abs=3e-3)


def test_one_seed_has_the_interval_it_brought() -> None:
    assert estimate([2.0]) == Estimate(2, 2, 2)
    assert estimate([(0.5, 0.4, 0.7)]) == Estimate(0.5, 0.4, 0.7)


def test_over_seeds_their_own_intervals_do_not_count() -> None:
    assert estimate([(1.0, 0, 9), (2.0, 0, 9), (3.0, 0, 9)]) == estimate([1.0, 2.0, 3.0])


def test_one_that_is_no_number_leaves_no_interval() -> None:
    found = estimate([1.0, math.nan])
    assert math.isnan(found.mean) and math.isnan(found.low)
    assert estimate([1.0, math.inf]) == Estimate(math.inf, math.inf, math.inf)


@pytest.mark.parametrize(
    ("low", "high", "number", "verdict"),
    [
        (1, None, (2, 1.5, 2.5), HOLDS),
        (1, None, (2, 1.0, 3.0), HOLDS),
        (1, None, (2, 0.5, 3.5), OPEN),
        (1, None, (0.9, 0.5, 1.5), OPEN),
        (1, None, (0.5, 0.4, 0.6), FAILS),
        (None, 1, (0.5, 0.4, 0.6), HOLDS),
        (None, 1, (0.5, 0.4, 1.1), OPEN),
        (None, 1, (2, 1.5, 2.5), FAILS),
        (1, 2, (1.5, 1.2, 1.8), HOLDS),
        (1, 2, (1.5, 0.5, 2.5), OPEN),
        (1, 2, (3, 2.5, 3.5), FAILS),
        (4, 4, (4, 4, 4), HOLDS),
        (4, 4, (5, 5, 5), FAILS),
        (1, None, (math.inf, math.inf, math.inf), HOLDS),
        (None, 1, (math.nan, math.nan, math.nan), FAILS),
        (1, None, (math.nan, math.nan, math.nan), FAILS),
    ],
)
def test_a_mark(low: float | None, high: float | None, number: tuple[float, float, float], verdict: str) -> None:
    assert held(Mark(of="x", why="", low=low, high=high), {"x": Estimate(*number)}) == verdict


def test_a_mark_for_what_was_not_measured_is_an_error() -> None:
    with pytest.raises(ClearheadError, match="'y', which was not measured; there are x"):
        held(Mark(of="y", why="", low=1), {"x": Estimate(1, 1, 1)})


def test_the_worst_mark_decides_and_only_those_that_count() -> None:
    one = Measured(values={"good": 1.0, "open": (1.0, 0.0, 2.0), "bad": 0.0})
    marks = {name: Mark(of=name, why="", low=0.5) for name in one.values}
    assert judge([marks["good"]], [one], quick=True) == HOLDS
    assert judge([marks["good"], marks["open"]], [one], quick=True) == OPEN
    assert judge([marks["bad"], marks["good"], marks["open"]], [one], quick=True) == FAILS
    only_full = Mark(of="bad", why="", low=0.5, at="full")
    assert judge([marks["good"], only_full], [one], quick=True) == HOLDS
    assert judge([marks["good"], only_full], [one], quick=False) == FAILS


def test_numbers_are_taken_over_seeds() -> None:
    found = estimates([Measured(values={"x": 1.0, "y": 5.0}), Measured(values={"x": 3.0, "y": 5.0})])
    assert found["x"].mean == 2 and found["y"] == Estimate(5, 5, 5)
