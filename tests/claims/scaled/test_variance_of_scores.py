"""The claim of the scores' variance holds, and not without the divisor, or where it is d in place of sqrt(d)."""

from __future__ import annotations

import pytest

from clearhead.claims.scaled import variance_of_scores
from clearhead.claims.verdict import FAILS, HOLDS
from tests.claims.quick import verdict


def test_it_holds() -> None:
    assert verdict("variance-of-scores") == HOLDS


@pytest.mark.parametrize("broken", [lambda d_head: 1.0, lambda d_head: 1 / d_head])
def test_with_another_divisor_it_fails(monkeypatch, broken) -> None:
    monkeypatch.setattr(variance_of_scores, "scale_of", broken)
    assert verdict("variance-of-scores") == FAILS
