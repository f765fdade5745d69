"""Laws of scaling, against what their papers print and values worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from clearhead.costs.scaling import (
    BESIROGLU,
    HOFFMANN,
    KAPLAN_SIZE,
    PF_DAY,
    ParametricLaw,
    allocations,
    frontier,
    isoflop,
    kaplan,
    kaplan_loss,
)
from clearhead.errors import UsageError

TABLE_3 = {
    4e8: (1.92e19, 8.0e9),
    1e9: (1.21e20, 20.2e9),
    1e10: (1.23e22, 205.1e9),
    67e9: (5.76e23, 1.5e12),
    175e9: (3.85e24, 3.7e12),
    280e9: (9.90e24, 5.9e12),
    520e9: (3.43e25, 11.0e12),
    1e12: (1.27e26, 21.2e12),
    1e13: (1.30e28, 216.2e12),
}
"""Hoffmann 2022: parameters, and the operations and tokens for them by approach 1."""


def test_kaplan_by_hand() -> None:
    """At 1 PF-day, 8.64e19 operations: N = 1.3e9, D = 8.64e19 / 7.8e9 = 1.1077e10, and ln L = .05 ln 3.1e8 = .97760."""
    assert PF_DAY == 8.64e19
    found = kaplan(PF_DAY)
    assert found.parameters == 1.3e9
    assert found.tokens == pytest.approx(1.1077e10, rel=1e-4)
    assert found.loss == pytest.approx(np.exp(0.97760), rel=1e-4)
    # Ten times the budget: 5.37 times the size, 1.86 times the tokens.
    assert kaplan(10 * PF_DAY).parameters / found.parameters == pytest.approx(10**0.73)
    assert kaplan(10 * PF_DAY).tokens / found.tokens == pytest.approx(10**0.27)


def test_kaplans_loss_of_both() -> None:
    """With all the data there is, ten times the size multiplies it by 10^-.076 = .839 (PAPERS.md)."""
    assert kaplan_loss(1e10, 1e30) / kaplan_loss(1e9, 1e30) == pytest.approx(0.839, abs=5e-4)
    assert kaplan_loss(1e9, 1e30) == pytest.approx((KAPLAN_SIZE[0] / 1e9) ** 0.076)
    # And with any size, ten times the data by 10^-.095 = .8035.
    assert kaplan_loss(1e30, 1e10) / kaplan_loss(1e30, 1e9) == pytest.approx(0.8035, abs=5e-4)
    assert kaplan_loss(1e9, 1e9) > kaplan_loss(1e9, 1e10) > kaplan_loss(1e10, 1e10)


@pytest.mark.parametrize("size", TABLE_3)
def test_approach_1_is_the_papers_table(size: float) -> None:
    """The exponent is rounded to .50, which makes up to 4 % over nine powers of ten."""
    flops, tokens = TABLE_3[size]
    found = frontier(flops)
    assert found.parameters == pytest.approx(size, rel=0.04)
    assert found.tokens == pytest.approx(tokens, rel=0.06)
    assert 19 < found.tokens / found.parameters < 23


def test_approach_2() -> None:
    """67 billion for 6.88e23; and a budget a hundred times as large: 10^.98 times the size."""
    assert isoflop(6.88e23).parameters == 67e9
    assert isoflop(6.88e25).parameters == pytest.approx(67e9 * 9.5499, rel=1e-4)


def test_approach_3_by_hand() -> None:
    """For Gopher's budget, 5.76e23: a = .2849 / .6241 = .4565 and (C / 6)^a = (9.6e22)^.4565 = 3.097e10. The factor is
    (.3392 x 406.4 / (.2849 x 410.7))^(1 / .6241) = 1.1781^1.6023 = 1.300: the 40 billion of the paper's figure 4.
    """
    parameters, tokens = HOFFMANN.optimal(5.76e23)
    assert HOFFMANN.exponent == pytest.approx(0.4565, abs=5e-5)
    assert parameters == pytest.approx(40.3e9, rel=0.01)
    assert 6 * parameters * tokens == pytest.approx(5.76e23)


@pytest.mark.parametrize("law", [HOFFMANN, BESIROGLU])
def test_what_is_optimal_has_the_least_loss_for_the_budget(law: ParametricLaw) -> None:
    parameters, tokens = law.optimal(1e22)
    best = law.loss(parameters, tokens)
    for by in (0.5, 0.9, 1.1, 2):
        assert law.loss(parameters * by, tokens / by) > best


def test_the_loss_by_hand() -> None:
    """1 + 100 / 10 + 50 / 5."""
    assert ParametricLaw(1, 100, 50, 0.5, 1).loss(100, 5) == 21


def test_the_refitted_law_agrees_with_the_other_approaches() -> None:
    """a = .3658 / .7136 = .5126 (Besiroglu 2024), and about 20 tokens a parameter at Chinchilla's own budget."""
    assert BESIROGLU.exponent == pytest.approx(0.5126, abs=5e-5)
    parameters, tokens = BESIROGLU.optimal(5.76e23)
    assert 15 < tokens / parameters < 25
    hoffmann = HOFFMANN.optimal(5.76e23)
    assert hoffmann[1] / hoffmann[0] > 50


def test_all_of_them_for_a_budget() -> None:
    found = allocations(1e21)
    assert [one.law for one in found] == [
        "Kaplan",
        "Chinchilla 1",
        "Chinchilla 2",
        "Chinchilla 3",
        "Chinchilla 3, refitted",
    ]
    for one in found:
        assert 6 * one.parameters * one.tokens == pytest.approx(1e21)
        assert one.source
    assert kaplan(1e25).parameters > 5 * frontier(1e25).parameters


@pytest.mark.parametrize("flops", [0, -1e20, float("inf"), float("nan")])
def test_a_budget_that_is_none_is_refused(flops: float) -> None:
    with pytest.raises(UsageError, match="operations above 0"):
        allocations(flops)
