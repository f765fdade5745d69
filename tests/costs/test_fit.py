"""Laws fitted to runs: what made the losses is found again, and intervals hold it."""

from __future__ import annotations

import numpy as np
import pytest

from clearhead.costs.charts import svg
from clearhead.costs.fit import PowerLaw, fit
from clearhead.costs.runs import Run
from clearhead.costs.scaling import BESIROGLU, ParametricLaw
from clearhead.errors import ClearheadError

SIZES = (1e6, 3e6, 1e7, 3e7, 1e8)
LENGTHS = (2e8, 1e9, 5e9)


def runs(
    law: ParametricLaw | PowerLaw, sizes: tuple[float, ...], lengths: tuple[float, ...], noise: float = 0.0
) -> list[Run]:
    """What a law would have given, with relative errors."""
    random = np.random.default_rng(1)
    return [
        Run(f"{n:g}-{d:g}", int(n), int(d), law.loss(n, d) * float(np.exp(noise * random.standard_normal())))
        for n in sizes
        for d in lengths
    ]


def test_a_line_through_two_logarithms_by_hand() -> None:
    """L = (8 / N)^.5: 2, 1, .5 at N = 2, 8, 32."""
    found = fit([Run("", n, 100, loss) for n, loss in ((2, 2.0), (8, 1.0), (32, 0.5))], draws=3)
    assert isinstance(found.law, PowerLaw) and found.law.of == "N"
    assert found.intervals["scale"].value == pytest.approx(8)
    assert found.intervals["exponent"].value == pytest.approx(0.5)
    assert found.r_squared == pytest.approx(1)
    assert found.allocation(1e20) is None


def test_runs_of_one_size_give_a_law_of_tokens() -> None:
    found = fit(runs(PowerLaw(5e13, 0.095, "D"), (1e7,), LENGTHS), draws=3)
    assert isinstance(found.law, PowerLaw) and found.law.of == "D"
    assert found.law.exponent == pytest.approx(0.095)
    assert found.formula == "L(D) = (scale / D)^exponent"
    assert [curve.name for curve in found.charts()[0].curves] == ["10 M parameters", "runs"]


def test_the_law_of_both_is_found_again() -> None:
    found = fit(runs(BESIROGLU, SIZES, LENGTHS), draws=3)
    assert isinstance(found.law, ParametricLaw)
    assert found.law.alpha == pytest.approx(BESIROGLU.alpha, rel=0.01)
    assert found.law.beta == pytest.approx(BESIROGLU.beta, rel=0.01)
    assert pytest.approx(BESIROGLU.E, rel=0.01) == found.law.E
    assert found.r_squared > 0.99999
    allocation = found.allocation(1e18)
    assert allocation is not None and allocation.parameters == pytest.approx(BESIROGLU.optimal(1e18)[0], rel=0.05)


def test_the_intervals_hold_what_made_the_losses() -> None:
    """With errors of half a percent, as between seeds; and they grow with the errors."""
    found = fit(runs(BESIROGLU, SIZES, LENGTHS, noise=0.005), draws=60)
    for name in ("E", "alpha", "beta"):
        value, low, high = found.intervals[name]
        assert low <= getattr(BESIROGLU, name) <= high
        assert low <= value <= high
    assert found.intervals["N ~ C^"].value == pytest.approx(BESIROGLU.exponent, abs=0.1)
    less = fit(runs(BESIROGLU, SIZES, LENGTHS, noise=0.0005), draws=60)
    assert less.intervals["alpha"].high - less.intervals["alpha"].low < 0.5 * (
        found.intervals["alpha"].high - found.intervals["alpha"].low
    )


def test_the_same_runs_give_the_same_intervals() -> None:
    of = runs(BESIROGLU, SIZES, LENGTHS, noise=0.005)
    assert fit(of, draws=5).intervals == fit(of, draws=5).intervals


def test_no_constant_is_below_zero() -> None:
    """Losses that rise with the data have no B that is more."""
    rising = [Run("", int(n), int(d), 3 + n**-0.3 + 1e-11 * d) for n in SIZES for d in LENGTHS]
    law = fit(rising, draws=2).law
    assert isinstance(law, ParametricLaw) and min(law.E, law.A, law.B) >= 0


def test_too_few_runs_are_refused() -> None:
    with pytest.raises(ClearheadError, match="2 different sizes; a law needs 3 or more"):
        fit(runs(BESIROGLU, (1e6, 1e7), (1e9,)))
    with pytest.raises(ClearheadError, match="4 different sizes and numbers of tokens; a law needs 6"):
        fit(runs(BESIROGLU, (1e6, 1e7), (1e8, 1e9)))
    with pytest.raises(ClearheadError, match="do not fall as N grows"):
        fit([Run("", n, 100, n) for n in (1, 2, 3)])
    with pytest.raises(ClearheadError, match="not above 0"):
        fit([Run("", n, 100, 0.0) for n in (1, 2, 3)])


def test_the_picture_has_the_runs_and_the_law() -> None:
    found = fit(runs(BESIROGLU, SIZES, LENGTHS), draws=2)
    (chart,) = found.charts()
    assert [curve.name for curve in chart.curves] == ["200 M tokens", "1 B tokens", "5 B tokens", "runs"]
    assert len(chart.curves[-1].points) == 15
    assert svg([chart]).count("<circle") == 15 + 3
    assert found.to_json()["constants"]["alpha"]["value"] == found.intervals["alpha"].value
