"""A shift as one linear map."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from clearhead.ops import positions
from tests.claims.quick import verdict


def test_it_holds() -> None:
    assert verdict("linear-shift") == "holds"


def test_not_with_a_table_of_random_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(position: Tensor, d: int) -> Tensor:
        return torch.randn(len(position), d, generator=torch.Generator().manual_seed(1))

    monkeypatch.setattr(positions, "sinusoids", drawn)
    assert verdict("linear-shift") == "does not hold"


def test_not_where_waves_grow_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    sinusoids = positions.sinusoids

    def squeezed(position: Tensor, d: int) -> Tensor:
        return sinusoids(position**2 // 1000, d)

    monkeypatch.setattr(positions, "sinusoids", squeezed)
    assert verdict("linear-shift") == "does not hold"
