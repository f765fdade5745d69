"""Recurrent networks: one vector of all that was read, made anew by every token.

    simple       h_t = tanh(x_t + W h_{t-1})                                    Elman 1990
    lstm_1997    c_t = c_{t-1} + i g,      h_t = o tanh(c_t)                    Hochreiter and Schmidhuber 1997
    lstm         c_t = f c_{t-1} + i g,    h_t = o tanh(c_t)                    with the forget gate of Gers 2000
    gru          h_t = (1 - z) n + z h_{t-1},  n = tanh(x + r W h_{t-1})        Cho 2014

x_t is what a cell is given of a token: W_x times its input, and a bias. Gates are sigmoids of a part of x_t and of
W h_{t-1} each. The 1997 cell squashes with tanh here, where the paper has two scaled sigmoids. Weights lie as in
`torch.nn`: gate under gate, in the order of `GATES`.

Each step stands here by its formula, and the loop over them is the truth; `fused` is torch's own kernel. A token that
is not present leaves the memory as it was, and where `start_BT` is true a text begins anew.

Shape letters beside the library's: F hidden units, C gates x F, A width of additive attention.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

GATES: Mapping[str, str] = {"simple": "", "lstm": "ifgo", "lstm_1997": "igo", "gru": "rzn"}
"""The gates of each cell: i input, f forget, g what is to be written, o output; r reset, z update, n the new state."""
HAS_CELL = frozenset({"lstm", "lstm_1997"})


class Memory(NamedTuple):
    """What a network keeps: its hidden vector, and an LSTM its cell."""

    hidden: Float[Tensor, "B f"]
    cell: Float[Tensor, "B f"] | None = None


class Weights(NamedTuple):
    """A cell's parameters, in torch's order and under its names."""

    weight_ih: Float[Tensor, "c i"]
    weight_hh: Float[Tensor, "c f"]
    bias_ih: Float[Tensor, "c"]
    bias_hh: Float[Tensor, "c"]


Change = Callable[[int, str, Tensor], Tensor]
"""Is given slot, name and value of everything a step works out, gates by their letter; what it returns is used."""
Attend = Callable[[int, Tensor], Tensor]
"""Of a slot and the hidden vector before it: what a source adds to x."""


def unchanged(slot: int, name: str, value: Tensor) -> Tensor:
    """The value as it is."""
    return value


# ---- one step


def step(
    cell: str, x_BC: Float[Tensor, "B c"], memory: Memory, weights: Weights, slot: int = 0, change: Change = unchanged
) -> Memory:
    """The memory after one token."""
    y_BC = F.linear(memory.hidden, weights.weight_hh, weights.bias_hh)
    match cell:
        case "simple":
            return Memory(change(slot, "hidden", torch.tanh(x_BC + y_BC)))
        case "gru":
            return _gru(x_BC, y_BC, memory, slot, change)
        case _:
            return _lstm(GATES[cell], x_BC + y_BC, memory, slot, change)


def _lstm(gates: str, y_BC: Tensor, memory: Memory, slot: int, change: Change) -> Memory:
    """Hochreiter and Schmidhuber 1997, equations 7 to 10; with a forget gate, Gers 2000."""
    assert memory.cell is not None
    parts = dict(zip(gates, y_BC.chunk(len(gates), dim=1), strict=True))
    squashed = {k: change(slot, k, torch.tanh(y) if k == "g" else torch.sigmoid(y)) for k, y in parts.items()}
    carried_BF = squashed["f"] * memory.cell if "f" in squashed else memory.cell
    cell_BF = change(slot, "cell", carried_BF + squashed["i"] * squashed["g"])
    return Memory(change(slot, "hidden", squashed["o"] * torch.tanh(cell_BF)), cell_BF)


def _gru(x_BC: Tensor, y_BC: Tensor, memory: Memory, slot: int, change: Change) -> Memory:
    """Cho 2014, equations 5 to 8, with torch's z, which is their 1 - z, and reset after the product."""
    (xr, xz, xn), (yr, yz, yn) = x_BC.chunk(3, dim=1), y_BC.chunk(3, dim=1)
    r_BF = change(slot, "r", torch.sigmoid(xr + yr))
    z_BF = change(slot, "z", torch.sigmoid(xz + yz))
    n_BF = change(slot, "n", torch.tanh(xn + r_BF * yn))
    return Memory(change(slot, "hidden", (1 - z_BF) * n_BF + z_BF * memory.hidden))


# ---- a text


def recur(
    cell: str,
    x_BTC: Float[Tensor, "B T c"],
    first: Memory,
    weights: Weights,
    *,
    present_BT: Bool[Tensor, "B T"] | None = None,
    start_BT: Bool[Tensor, "B T"] | None = None,
    backwards: bool = False,
    attend: Attend | None = None,
    change: Change = unchanged,
) -> tuple[Float[Tensor, "B T f"], Memory]:
    """The hidden vector after every token, one token after another, and the memory after the last.

    `first` is the memory that every text starts with. Backwards a text ends where it starts.
    """
    n_slots, memory = x_BTC.shape[1], first
    hidden: list[Tensor] = [first.hidden] * n_slots
    for t in reversed(range(n_slots)) if backwards else range(n_slots):
        if start_BT is not None and not backwards:
            memory = _chosen(start_BT[:, t], first, memory)
        x_BC = x_BTC[:, t]
        if attend is not None:
            x_BC = x_BC + attend(t, memory.hidden)
        after = step(cell, x_BC, memory, weights, t, change)
        memory = after if present_BT is None else _chosen(present_BT[:, t], after, memory)
        hidden[t] = memory.hidden
        if start_BT is not None and backwards:
            memory = _chosen(start_BT[:, t], first, memory)
    return torch.stack(hidden, dim=1), memory


def _chosen(rows_B: Tensor, a: Memory, b: Memory) -> Memory:
    """Of some rows `a`, of the others `b`."""
    rows_B1 = rows_B[:, None]
    cell = None if a.cell is None or b.cell is None else torch.where(rows_B1, a.cell, b.cell)
    return Memory(torch.where(rows_B1, a.hidden, b.hidden), cell)


# ---- torch's own kernels


def fused(
    cell: str,
    x_BTI: Float[Tensor, "B T i"],
    first: Memory,
    weights: Weights,
    *,
    present_BT: Bool[Tensor, "B T"] | None = None,
    start_BT: Bool[Tensor, "B T"] | None = None,
    backwards: bool = False,
) -> tuple[Float[Tensor, "B T f"], Memory]:
    """The same of the inputs themselves, without a loop here. At padding the hidden vectors are zeros, and backwards
    the memory that comes back is that of no use.
    """
    if cell == "lstm_1997":
        weights = Weights(*(_with_open_gate(w, first.hidden.shape[1]) for w in weights))
    if present_BT is not None or start_BT is not None:
        return _packed(cell, x_BTI, first, weights, present_BT, start_BT, backwards)
    if backwards:
        x_BTI = x_BTI.flip(1)
    states = [state[None] for state in _states(first)]
    hidden_BTF, *last = _kernel(cell, (x_BTI,), states, weights, True, 1, 0.0, torch.is_grad_enabled(), False, True)
    return hidden_BTF.flip(1) if backwards else hidden_BTF, Memory(*(state[0] for state in last))


def _kernel(cell: str, read: tuple[Tensor, ...], states: list[Tensor], weights: Weights, *options: Any) -> Any:
    kernel: Any = torch.lstm if cell in HAS_CELL else torch.gru if cell == "gru" else torch.rnn_tanh
    return kernel(*read, states if cell in HAS_CELL else states[0], list(weights), *options)


OPEN = 100.0
"""The sigmoid of this is 1, to the last bit of float64."""


def _with_open_gate(weight: Tensor, d_hidden: int) -> Tensor:
    """The 1997 cell as today's, with a forget gate that is always open."""
    i, rest = weight[:d_hidden], weight[d_hidden:]
    forget = torch.full_like(i, OPEN) if weight.ndim == 1 else torch.zeros_like(i)
    return torch.cat([i, forget, rest])


def _packed(
    cell: str,
    x_BTI: Tensor,
    first: Memory,
    weights: Weights,
    present_BT: Tensor | None,
    start_BT: Tensor | None,
    backwards: bool,
) -> tuple[Tensor, Memory]:
    """Texts of any length side by side, longest first, as torch packs them: no step is taken at padding."""
    n_rows, n_slots, _ = x_BTI.shape
    present_BT = torch.ones_like(start_BT) if present_BT is None and start_BT is not None else present_BT
    assert present_BT is not None
    row_N, slot_N = present_BT.nonzero(as_tuple=True)
    if row_N.numel() == 0:
        return x_BTI.new_zeros(n_rows, n_slots, first.hidden.shape[1]), first
    begins_N = row_N != row_N.roll(1)
    begins_N[0] = True
    if start_BT is not None:
        begins_N = begins_N | start_BT[row_N, slot_N]
    text_N = begins_N.cumsum(0) - 1
    first_R = begins_N.nonzero()[:, 0]
    length_R = torch.bincount(text_N)
    within_N = torch.arange(len(row_N), device=row_N.device) - first_R[text_N]
    if backwards:
        within_N = length_R[text_N] - 1 - within_N
    rank_R = (-length_R).argsort(stable=True).argsort()
    order_N = (within_N * len(length_R) + rank_R[text_N]).argsort()
    sizes_L = torch.bincount(within_N).cpu()
    by_rank_R = rank_R.argsort()
    states = [state[row_N[first_R[by_rank_R]]][None] for state in _states(first)]
    read = (x_BTI[row_N[order_N], slot_N[order_N]], sizes_L)
    hidden_NF, *last = _kernel(cell, read, states, weights, True, 1, 0.0, torch.is_grad_enabled(), False)
    hidden_BTF = hidden_NF.new_zeros(n_rows, n_slots, hidden_NF.shape[1])
    hidden_BTF = hidden_BTF.index_put((row_N[order_N], slot_N[order_N]), hidden_NF)
    # The last text of each row that has one.
    ends_N = row_N != row_N.roll(-1)
    ends_N[-1] = True
    ended = rank_R[text_N[ends_N]]
    kept = [s.index_put((row_N[ends_N],), x[0, ended]) for s, x in zip(_states(first), last, strict=True)]
    return hidden_BTF, Memory(*kept)


def _states(memory: Memory) -> list[Tensor]:
    return [state for state in memory if state is not None]


# ---- a source


def additive_scores(
    query_BA: Float[Tensor, "B a"], keys_BSA: Float[Tensor, "B S a"], v_A: Float[Tensor, "a"]
) -> Float[Tensor, "B S"]:
    """e_j = v^T tanh(W s + U h_j), of `query` W s and `keys` U h_j (Bahdanau 2014, appendix A.1.2)."""
    scores_BS1: Tensor = torch.tanh(query_BA[:, None] + keys_BSA) @ v_A[:, None]
    return scores_BS1[..., 0]
