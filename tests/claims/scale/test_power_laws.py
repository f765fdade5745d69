"""Loss against size, data and compute. Models that do not learn from more show."""

from __future__ import annotations

import math

import pytest

from clearhead.claims.scale import power_laws
from tests.claims.quick import verdict


@pytest.mark.slow
def test_it_holds() -> None:
    assert verdict("power-laws") == "holds"


@pytest.mark.slow
def test_models_that_are_no_larger_than_the_smallest_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    made, sizes = power_laws.made, power_laws.QUICK.sizes
    n = {size: power_laws.parameters(size) for size in sizes}
    monkeypatch.setattr(power_laws, "parameters", n.get)
    monkeypatch.setattr(power_laws, "made", lambda size: made(sizes[0]))
    assert verdict("power-laws") == "does not hold"


def test_a_law_is_found_where_there_is_one() -> None:
    exponent, r_squared = power_laws.law([(x, 3 * x**-0.07) for x in (1e4, 1e5, 1e6, 1e7, 1e8)])
    assert isinstance(exponent, tuple) and exponent[0] == pytest.approx(0.07, abs=1e-6)
    assert r_squared == pytest.approx(1)


def test_there_is_none_where_the_loss_rises() -> None:
    assert math.isnan(power_laws.law([(1e4, 1.0), (1e5, 1.1), (1e6, 1.2)])[1])


def test_the_frontier_is_the_best_within_each_budget() -> None:
    curves = [(10, [(25, 3.0), (100, 2.5)]), (100, [(25, 2.8), (100, 2.0)])]
    plan = power_laws.Plan(sizes=((8, 1),) * 2, data=(), fixed=(8, 1), steps=100, rows=1, length=1, first=25)
    assert [loss for _, loss in power_laws.frontier(curves, plan)] == [3.0, 2.0]
