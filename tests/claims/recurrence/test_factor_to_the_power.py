"""The gradient against the power; a network that carries half, and one that begins elsewhere than it says, show."""

from __future__ import annotations

import pytest
from torch import Tensor

from clearhead.nn.recurrent import Cell
from clearhead.ops import recurrence
from clearhead.ops.recurrence import Change, Memory, Weights, unchanged
from tests.claims.quick import measured, verdict

STEP = recurrence.step


def test_it_holds() -> None:
    assert verdict("factor-to-the-power") == "holds"


def test_a_step_that_carries_half(monkeypatch: pytest.MonkeyPatch) -> None:
    def half(
        cell: str, x_BC: Tensor, memory: Memory, weights: Weights, slot: int = 0, change: Change = unchanged
    ) -> Memory:
        return STEP(cell, x_BC, Memory(memory.hidden / 2, memory.cell), weights, slot, change)

    monkeypatch.setattr(recurrence, "step", half)
    assert verdict("factor-to-the-power") == "does not hold"


def test_a_gain_that_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    first_values = Cell.first_values

    def without_gain(self: Cell) -> dict[str, Tensor]:
        values = first_values(self)
        return values | {"h_proj.weight": values["h_proj.weight"] / self.config.gain}

    monkeypatch.setattr(Cell, "first_values", without_gain)
    assert verdict("factor-to-the-power") == "does not hold"


def test_the_rate_of_a_gaussian_matrix_is_not_its_largest_singular_value() -> None:
    values = measured("factor-to-the-power").values
    assert values["Gaussian, rate over largest singular value"] < 0.7
