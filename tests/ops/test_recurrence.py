"""Recurrent steps against torch.nn and by hand; torch's kernels against the loop, padding and documents included."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from clearhead.ops.recurrence import GATES, HAS_CELL, Memory, Weights, additive_scores, fused, recur, step
from tests.oracles import error

CELLS = pytest.mark.parametrize("cell", list(GATES))
BOTH_WAYS = pytest.mark.parametrize("backwards", [False, True])
B, T, D, N = 4, 9, 5, 6
ORACLES = {"simple": nn.RNN, "lstm": nn.LSTM, "gru": nn.GRU}


def drawn(cell: str) -> tuple[Tensor, Memory, Weights]:
    """Inputs, a memory to start with, and weights, in float64 and wanting gradients."""
    torch.manual_seed(0)
    n = max(1, len(GATES[cell])) * N

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64).requires_grad_()

    weights = Weights(normal(n, D), normal(n, N), normal(n), normal(n))
    return normal(B, T, D), Memory(normal(B, N), normal(B, N) if cell in HAS_CELL else None), weights


def looped(cell: str, x_BTD: Tensor, first: Memory, weights: Weights, **how: Any) -> tuple[Tensor, Memory]:
    return recur(cell, nn.functional.linear(x_BTD, weights.weight_ih, weights.bias_ih), first, weights, **how)


@pytest.mark.parametrize("cell", list(ORACLES))
def test_a_text_is_what_torch_makes_of_it(cell: str) -> None:
    x, first, weights = drawn(cell)
    oracle = ORACLES[cell](D, N, batch_first=True).double()
    for name, value in weights._asdict().items():
        getattr(oracle, f"{name}_l0").data.copy_(value)
    states = tuple(state[None] for state in first if state is not None)
    theirs, last = oracle(x, states if cell in HAS_CELL else states[0])
    ours, memory = looped(cell, x, first, weights)
    assert error(ours, theirs) <= 1e-12
    last = last if cell in HAS_CELL else (last,)
    for mine, other in zip((state for state in memory if state is not None), last, strict=True):
        assert error(mine, other[0]) <= 1e-12


def test_steps_by_hand() -> None:
    """One unit; x is what the input gives each gate, h the vector before, and W h is h for every gate."""

    def one(cell: str, *x: float) -> Memory:
        n = len(x)
        weights = Weights(torch.zeros(n, 1), torch.ones(n, 1), torch.zeros(n), torch.zeros(n))
        memory = Memory(torch.tensor([[0.5]]), torch.tensor([[2.0]]) if cell in HAS_CELL else None)
        return step(cell, torch.tensor([x]), memory, weights)

    def s(v: float) -> Tensor:
        return torch.sigmoid(torch.tensor(v))

    def t(v: Any) -> Tensor:
        return torch.tanh(torch.as_tensor(v))

    assert error(one("simple", 0.3).hidden, t([[0.8]])) <= 1e-6
    i, g, o = 0.1, 0.2, 0.3
    cell_1997 = 2.0 + s(0.6) * t(0.7)
    found = one("lstm_1997", i, g, o)
    assert found.cell is not None
    assert error(found.cell, cell_1997[None, None]) <= 1e-6
    assert error(found.hidden, (s(0.8) * t(cell_1997))[None, None]) <= 1e-6
    cell_now = s(-0.5) * 2.0 + s(0.6) * t(0.7)
    assert error(one("lstm", i, -1.0, g, o).hidden, (s(0.8) * t(cell_now))[None, None]) <= 1e-6
    r, z = s(0.6), s(0.7)
    assert error(one("gru", 0.1, 0.2, 0.3).hidden, ((1 - z) * t(0.3 + r * 0.5) + z * 0.5)[None, None]) <= 1e-6


@CELLS
@BOTH_WAYS
@pytest.mark.parametrize("slots", ["plain", "padding", "documents", "both"])
def test_the_kernel_is_the_loop(cell: str, backwards: bool, slots: str) -> None:
    """Values, the last memory, and all gradients; of padding anywhere, and a row of nothing else."""
    x, first, weights = drawn(cell)
    present, start = None, None
    if slots in ("padding", "both"):
        present = torch.rand(B, T) < 0.6
        present[0], present[1] = True, False
    if slots in ("documents", "both"):
        start = torch.rand(B, T) < 0.3
        start = start if present is None else start & present
    how: dict[str, Any] = {"present_BT": present, "start_BT": start, "backwards": backwards}
    leaves = [x, *weights, *(state for state in first if state is not None)]
    gradients = []
    runs = [run(cell, x, first, weights, **how) for run in (looped, fused)]
    shared = torch.ones(B, T, dtype=torch.bool) if present is None else present
    assert error(runs[0][0][shared], runs[1][0][shared]) <= 1e-12
    for hidden, last in runs:
        value = hidden[shared].square().sum()
        if not backwards:
            value = value + sum(state.sin().sum() for state in last if state is not None)
        gradients.append(torch.autograd.grad(value, leaves))
    for a, b in zip(*gradients, strict=True):
        assert error(a, b) <= 1e-12
    if not backwards:
        for a, b in zip(runs[0][1], runs[1][1], strict=True):
            assert a is b is None or error(a, b) <= 1e-12


@CELLS
def test_padding_leaves_the_memory_as_it_was(cell: str) -> None:
    x, first, weights = drawn(cell)
    present = torch.ones(B, T, dtype=torch.bool)
    present[:, 3:6] = False
    without, end = looped(cell, torch.cat([x[:, :3], x[:, 6:]], dim=1), first, weights)
    hidden, last = looped(cell, x, first, weights, present_BT=present)
    assert error(hidden[present], without.flatten(0, 1)) <= 1e-12
    assert error(last.hidden, end.hidden) <= 1e-12
    assert torch.equal(hidden[:, 5], hidden[:, 2])


@CELLS
def test_a_text_begins_with_the_first_memory(cell: str) -> None:
    x, first, weights = drawn(cell)
    start = torch.zeros(B, T, dtype=torch.bool)
    start[:, [0, 4]] = True
    parts = [looped(cell, part, first, weights)[0] for part in (x[:, :4], x[:, 4:])]
    assert error(looped(cell, x, first, weights, start_BT=start)[0], torch.cat(parts, dim=1)) <= 1e-12


@CELLS
def test_backwards_is_the_text_turned_round(cell: str) -> None:
    x, first, weights = drawn(cell)
    turned, _ = looped(cell, x.flip(1), first, weights)
    assert error(looped(cell, x, first, weights, backwards=True)[0], turned.flip(1)) <= 1e-12


def test_the_cell_of_1997_keeps_what_it_holds() -> None:
    """With its gates shut it is as it was, whatever comes: the constant error carousel."""
    x, first, weights = drawn("lstm_1997")
    shut = weights._replace(bias_ih=torch.full_like(weights.bias_ih, -50.0))
    _, last = looped("lstm_1997", 0.1 * x, first, shut)
    assert first.cell is not None and last.cell is not None
    assert error(last.cell, first.cell) <= 1e-12


def test_additive_scores_by_hand() -> None:
    """e_j = v^T tanh(W s + U h_j), one key after another."""
    torch.manual_seed(0)
    query, keys, v = (torch.randn(shape, dtype=torch.float64) for shape in ((2, 3), (2, 4, 3), (3,)))
    for b in range(2):
        for j in range(4):
            expected = sum(float(v[a] * torch.tanh(query[b, a] + keys[b, j, a])) for a in range(3))
            assert abs(float(additive_scores(query, keys, v)[b, j]) - expected) <= 1e-12


def test_what_comes_back_is_used() -> None:
    """A gate that is put to nought by whoever looks: nothing is written, and the update of a GRU keeps all."""

    def nothing(slot: int, name: str, value: Tensor) -> Tensor:
        return torch.zeros_like(value) if name == "i" else torch.ones_like(value) if name == "z" else value

    x, first, weights = drawn("gru")
    assert error(looped("gru", x, first, weights, change=nothing)[1].hidden, first.hidden) <= 1e-12
    x, first, weights = drawn("lstm_1997")
    last = looped("lstm_1997", x, first, weights, change=nothing)[1]
    assert last.cell is not None and first.cell is not None and error(last.cell, first.cell) <= 1e-12
