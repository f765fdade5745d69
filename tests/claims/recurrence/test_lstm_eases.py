"""What an LSTM keeps of a gradient; a forget gate that starts half shut, and a cell that loses half, show."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from clearhead.claims.catalogue import find
from clearhead.claims.recurrence import lstm_eases
from clearhead.claims.running import Measuring
from clearhead.nn.recurrent import Cell
from clearhead.ops import recurrence
from clearhead.ops.recurrence import Change, Memory, Weights, unchanged
from tests.claims.quick import verdict

STEP = recurrence.step


def test_it_holds() -> None:
    assert verdict("lstm-eases") == "holds"


def test_forget_bias_0(monkeypatch: pytest.MonkeyPatch) -> None:
    first_values = Cell.first_values

    def without_bias(self: Cell) -> dict[str, Tensor]:
        values = first_values(self)
        return values | {"x_proj.bias": torch.zeros_like(values["x_proj.bias"])}

    monkeypatch.setattr(Cell, "first_values", without_bias)
    assert verdict("lstm-eases") == "does not hold"


def test_a_cell_that_loses_half(monkeypatch: pytest.MonkeyPatch) -> None:
    def losing(
        cell: str, x_BC: Tensor, memory: Memory, weights: Weights, slot: int = 0, change: Change = unchanged
    ) -> Memory:
        left = None if memory.cell is None else memory.cell / 2
        return STEP(cell, x_BC, Memory(memory.hidden, left), weights, slot, change)

    monkeypatch.setattr(recurrence, "step", losing)
    assert verdict("lstm-eases") == "does not hold"


def test_the_sum_of_two_marked_numbers() -> None:
    frames_BMF, sum_B = lstm_eases.adding_problem(50, torch.Generator().manual_seed(0))
    numbers_BT, marks_BT = frames_BMF.unbind(1)
    assert marks_BT.unflatten(1, (2, -1)).sum(-1).eq(1).all()
    assert torch.equal((numbers_BT * marks_BT).sum(1), sum_B)


def test_a_full_run_trains_both(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lstm_eases, "STEPS", lstm_eases.SMOOTH)
    result = find("lstm-eases").measure(Measuring(seed=0, quick=False))
    assert [len(losses) for losses in result.series["losses"].values()] == [1, 1]
    assert {mark.of for mark in lstm_eases.CLAIM.marks} <= set(result.values)
