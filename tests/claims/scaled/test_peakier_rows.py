"""The claim of peakier rows holds, and not where there is no divisor to leave out."""

from __future__ import annotations

from clearhead.claims.scaled import peakier_rows
from clearhead.claims.verdict import FAILS, HOLDS
from tests.claims.quick import verdict


def test_it_holds() -> None:
    assert verdict("peakier-rows") == HOLDS


def test_without_the_divisor_it_fails(monkeypatch) -> None:
    monkeypatch.setattr(peakier_rows, "scale_of", lambda d_head: 1.0)
    assert verdict("peakier-rows") == FAILS
