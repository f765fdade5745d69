"""Wavelengths, fitted."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from clearhead.ops import positions
from tests.claims.quick import verdict


def test_it_holds() -> None:
    assert verdict("wavelengths") == "holds"


def test_not_with_waves_in_equal_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    def linear(d: int, base: float) -> Tensor:
        return torch.linspace(1.0, 1.0 / base, d // 2)

    monkeypatch.setattr(positions, "frequencies", linear)
    assert verdict("wavelengths") == "does not hold"


def test_not_where_places_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    sinusoids = positions.sinusoids

    def wrapped(position: Tensor, d: int) -> Tensor:
        return sinusoids(position % 4096, d)

    monkeypatch.setattr(positions, "sinusoids", wrapped)
    assert verdict("wavelengths") == "does not hold"
