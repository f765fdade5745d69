"""The claim of the softmax's gradient holds, and not without the divisor."""

from __future__ import annotations

import pytest

from clearhead.claims.ingredients.one_head import scale_of
from clearhead.claims.scaled import softmax_gradient
from clearhead.claims.verdict import FAILS, HOLDS
from tests.claims.quick import measured, verdict


def test_it_holds() -> None:
    assert verdict("softmax-gradient") == HOLDS


def test_the_pilots_numbers() -> None:
    """PAPERS.md, one seed: 0.335, 0.032 and 1.3e-5 unscaled, 0.30 scaled."""
    values = measured("softmax-gradient").values
    assert values["norm, unscaled, d = 16"] == pytest.approx(0.335, rel=0.05)
    assert values["norm, unscaled, d = 128"] == pytest.approx(0.032, rel=0.25)
    assert values["norm, scaled, d = 128"] == pytest.approx(0.30, rel=0.05)
    assert values["norm, unscaled, d = 1024"] < 1e-4


def test_without_the_divisor_it_fails(monkeypatch) -> None:
    monkeypatch.setattr(softmax_gradient, "scale_of", lambda d_head: 1.0)
    assert verdict("softmax-gradient") == FAILS


def test_the_scale_is_the_librarys() -> None:
    assert [scale_of(d) for d in (4, 64, 1024)] == [0.5, 0.125, 1 / 32]
