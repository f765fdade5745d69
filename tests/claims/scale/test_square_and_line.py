"""n^2 numbers a head and a cache along a line; a window or a wrong formula shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clearhead.claims.scale import square_and_line
from clearhead.config import MaskConfig
from clearhead.costs import flops
from tests.claims.quick import measured, verdict


def test_it_holds() -> None:
    assert verdict("square-and-line") == "holds"
    assert measured("square-and-line").series["pattern"] == [n**2 for n in (64, 128, 256, 512)]


def test_a_window_keeps_no_more_than_it_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    windowed = replace(square_and_line.MIXER, mask=MaskConfig(window=100))
    monkeypatch.setattr(square_and_line, "MIXER", windowed)
    assert measured("square-and-line").values["exponent of the cache"] < 0.5
    assert verdict("square-and-line") == "does not hold"


def test_a_formula_that_counts_half_the_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flops, "reach", lambda mask, run: (run.context + run.tokens) // 2)
    assert verdict("square-and-line") == "does not hold"
