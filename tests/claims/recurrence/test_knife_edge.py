"""Gains around 1 over 200 steps; a network that carries half, and one that does not learn, show."""

from __future__ import annotations

import pytest
from torch import Tensor

from clearhead.claims.recurrence import knife_edge
from clearhead.ops import recurrence
from clearhead.ops.recurrence import Change, Memory, Weights, unchanged
from tests.claims.quick import verdict

STEP = recurrence.step


def test_it_holds() -> None:
    assert verdict("knife-edge") == "holds"


def test_a_step_that_carries_a_little_less(monkeypatch: pytest.MonkeyPatch) -> None:
    def less(
        cell: str, x_BC: Tensor, memory: Memory, weights: Weights, slot: int = 0, change: Change = unchanged
    ) -> Memory:
        return STEP(cell, x_BC, Memory(memory.hidden * 0.999, memory.cell), weights, slot, change)

    monkeypatch.setattr(recurrence, "step", less)
    assert verdict("knife-edge") == "does not hold"


def test_a_network_that_is_not_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knife_edge, "RATE", 0.0)
    assert verdict("knife-edge") == "does not hold"
