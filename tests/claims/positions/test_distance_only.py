"""Similarity of two encodings."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from clearhead.claims.positions.distance_only import order_kept
from clearhead.ops import positions
from tests.claims.quick import verdict


def test_it_holds() -> None:
    assert verdict("distance-only") == "holds"


def test_not_with_a_table_of_random_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn(position: Tensor, d: int) -> Tensor:
        return torch.randn(len(position), d, generator=torch.Generator().manual_seed(0)) / 2**0.5

    monkeypatch.setattr(positions, "sinusoids", drawn)
    assert verdict("distance-only") == "does not hold"


def test_not_with_sines_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sinusoids = positions.sinusoids

    def sines(position: Tensor, d: int) -> Tensor:
        return sinusoids(position, d)[:, ::2].repeat(1, 2)

    monkeypatch.setattr(positions, "sinusoids", sines)
    assert verdict("distance-only") == "does not hold"


def test_the_share_in_order() -> None:
    assert order_kept(torch.tensor([3.0, 2.0, 1.0])) == 1
    assert order_kept(torch.tensor([3.0, 1.0, 2.0])) == pytest.approx(2 / 3)
