"""What a model remembers of one text, taken out of its state, to be put into other states: of several rows, shorter,
after a restart.

Each kind of layer state has a `Part`. Keys, values and latents can be cut anywhere, a window as far back as it still
holds what it reaches, and where a scan or a recurrent network has come to can't be cut at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import singledispatch
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.layer_state import CrossState, KVState, LatentState, LayerState, RecurrentState, ScanState, WindowState
from clearhead.ops.masks import Positions
from clearhead.ops.recurrence import Memory
from clearhead.state import State

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer


@dataclass(frozen=True)
class Part:
    """What one layer remembers of a text: tensors of one row, (1, ...)."""

    tensors: Mapping[str, Tensor]
    first: int = 0
    """Where there is a slot a token (dimension 2): which token the first slot is of. A window drops the oldest."""
    least: int = 0
    """The fewest tokens that the text can be cut back to."""


@dataclass(frozen=True)
class Remembered:
    """What a model remembers of the first `n` tokens of a text, with no padding between them."""

    n: int
    parts: Mapping[str, Part]
    """By the address of the layer."""
    read_as: int
    """As in `State`: how long the text was when it was last read."""
    keeps_tokens: bool = False
    """Whether the model's states keep what was read, to read it again when rotary frequencies change."""

    @property
    def least(self) -> int:
        """The fewest tokens it can be cut back to, but for none at all."""
        return max((part.least for part in self.parts.values()), default=0)

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for part in self.parts.values() for x in part.tensors.values())

    def state(self, model: Transformer, tokens: list[int], n_rows: int, capacity: int, *, slides: bool = True) -> State:
        """A new state of equal rows that have read `tokens`, which this text begins with; nothing is shared with it.
        `slides` is for its windows (see `keep_all`).

        Written once, straight into buffers with room for `capacity` tokens, where cutting and copying a state would
        move it twice.
        """
        n, device = len(tokens), model.device
        assert n == self.n or self.least <= n < self.n
        state = model.new_state(capacity) if slides else keep_all(model.new_state(capacity))
        with torch.inference_mode(False), torch.no_grad():
            # All layers are given one object, and so share what is worked out from it in each pass, such as masks.
            positions = Positions(span=(0, n))
            for path, part in self.parts.items():
                rows = {name: x.to(device).expand(n_rows, *x.shape[1:]) for name, x in part.tensors.items()}
                put(state.at(path), replace(part, tensors=rows), positions)
            state.advance(positions, device)
            state.read_as = self.read_as
            if self.keeps_tokens:
                state.tokens = torch.tensor([tokens], device=device).expand(n_rows, -1)
        return state


def keep_all(state: State) -> State:
    """An empty state whose windows keep what falls out of them, so that what it remembers can be cut back anywhere."""
    for layer in state.layers:
        if isinstance(layer, WindowState):
            layer.slides = False
    return state


def remember(state: State, row: int, n: int) -> Remembered:
    """What a state remembers of the `n` tokens that a row has read; a copy of its own.

    Raises:
        ClearheadError: the row has padding between or behind its tokens.
    """
    rows_BS = state.positions.rows(torch.device("cpu"))
    own_S = rows_BS[row % rows_BS.shape[0]].cpu()
    padding = state.length - n
    if padding < 0 or not torch.equal(own_S[padding:], torch.arange(n)) or bool((own_S[:padding] >= 0).any()):
        raise ClearheadError("a text can be kept where padding stands before it alone; read it by itself")
    read_as = state.read_as if isinstance(state.read_as, int) else int(state.read_as.flatten()[row])
    # Ordinary tensors, that may be used outside of inference mode as well.
    with torch.inference_mode(False), torch.no_grad():
        parts = {path: take(layer, row, padding) for path, layer in state.by_path.items()}
    return Remembered(n, parts, read_as, state.tokens is not None)


@singledispatch
def take(layer: LayerState, row: int, padding: int) -> Part:
    """What a layer remembers of a row that stands behind so many slots of padding."""
    raise ClearheadError(f"a {type(layer).__name__} can't be kept as a prefix; read the whole text each time")


@singledispatch
def put(layer: LayerState, part: Part, positions: Positions) -> None:
    """Fill an empty layer state with what `part` remembers of the tokens at `positions`, all or the first of its own.

    It makes copies: a layer may write into what it holds.
    """
    raise ClearheadError(f"a {type(layer).__name__} can't be made of a prefix; read the whole text each time")


def _row(x: Tensor, row: int, first: int | None = None) -> Tensor:
    """One row, from slot `first` on where there is a slot a token; a copy."""
    own = x[row : row + 1] if first is None else x[row : row + 1, :, first:]
    return own.detach().clone(memory_format=torch.contiguous_format)


@take.register
def _(layer: KVState, row: int, padding: int) -> Part:
    return Part({name: _row(x, row, padding) for name, x in layer.tensors().items()})


@put.register
def _(layer: KVState, part: Part, positions: Positions) -> None:
    n = len(positions)
    layer.append(part.tensors["k"][:, :, :n], part.tensors["v"][:, :, :n], positions)


@take.register
def _(layer: LatentState, row: int, padding: int) -> Part:
    return Part({name: _row(x, row, padding) for name, x in layer.tensors().items()})


@put.register
def _(layer: LatentState, part: Part, positions: Positions) -> None:
    layer.append(part.tensors["latent"][:, :, : len(positions)], positions)


@take.register
def _(layer: WindowState, row: int, padding: int) -> Part:
    # After a long piece more is held than the layer has room for by itself; that much is enough to be cut back a bit.
    oldest = max(layer.dropped, padding, layer.length - layer.capacity if layer.slides else 0)
    first = oldest - padding
    tensors = {name: _row(x, row, oldest - layer.dropped) for name, x in layer.held.tensors().items()}
    return Part(tensors, first, first and first + layer.window - 1)


@put.register
def _(layer: WindowState, part: Part, positions: Positions) -> None:
    n = len(positions)
    first = max(part.first, n - layer.capacity if layer.slides else 0)
    k, v = (part.tensors[name][:, :, first - part.first : n - part.first] for name in ("k", "v"))
    layer.resume(first, k, v, positions.part(first, n))


@take.register
def _(layer: CrossState, row: int, padding: int) -> Part:
    if layer.kept is None:
        return Part({})
    k, v, positions = layer.kept
    rows_BS = positions.rows(k.device)
    return Part({"k": _row(k, row), "v": _row(v, row), "positions": _row(rows_BS, row % rows_BS.shape[0])})


@put.register
def _(layer: CrossState, part: Part, positions: Positions) -> None:
    if part.tensors:
        k, v, rows_BS = (part.tensors[name].contiguous() for name in ("k", "v", "positions"))
        full = torch.equal(rows_BS[0], torch.arange(rows_BS.shape[1], device=rows_BS.device))
        layer.fill(k, v, Positions(span=(0, rows_BS.shape[1])) if full else Positions(rows_BT=rows_BS))


def _come_to(layer: ScanState | RecurrentState, row: int, padding: int) -> Part:
    return Part({name: _row(x, row) for name, x in layer.tensors().items()}, least=layer.length - padding)


take.register(ScanState, _come_to)
take.register(RecurrentState, _come_to)


@put.register
def _(layer: ScanState, part: Part, positions: Positions) -> None:
    layer.keep(len(positions), part.tensors["tail"].clone(), part.tensors["state"].clone())


@put.register
def _(layer: RecurrentState, part: Part, positions: Positions) -> None:
    cell = part.tensors.get("cell")
    layer.keep(len(positions), Memory(part.tensors["hidden"].clone(), None if cell is None else cell.clone()))
