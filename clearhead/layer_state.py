"""What a layer remembers of the tokens it has read. Each mixer makes the kind it needs: `KVState` keeps every key and
value, `WindowState` only those a window still reaches, `LatentState` what they are made from, `CrossState` those of the
source, `ScanState` where a scan has come to, `RecurrentState` where a recurrent network has.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor

from clearhead.ops.masks import Positions
from clearhead.ops.recurrence import Memory


@runtime_checkable
class LayerState(Protocol):
    """What one sub-layer remembers. `length` counts the slots it was given, padding included."""

    length: int

    def can_truncate(self, length: int) -> bool:
        """Whether everything the first `length` slots would need is still there."""
        ...

    def truncate(self, length: int) -> None:
        """Forget all slots from `length` on, where `can_truncate` says that this is possible."""
        ...

    def select(self, rows: Int[Tensor, "b"]) -> None:
        """Keep these rows of the batch, in this order; a row may be named twice."""
        ...

    def tensors(self) -> dict[str, Tensor]:
        """What is kept, by name."""
        ...


class AttentionState(LayerState, Protocol):
    """What a layer of self-attention remembers."""

    def append(self, k_BGTK: Tensor, v_BGTK: Tensor, positions: Positions) -> tuple[Tensor, Tensor, Positions]:
        """Add T tokens; returns the keys and values that any of them may see, and their positions."""
        ...


class KVState:
    """Keys and values of every token, (B, G, S, K) each. Room grows by doubling, so appending costs one copy."""

    def __init__(self, capacity: int | None = None) -> None:
        self.length = 0
        self.positions = Positions(span=(0, 0))
        self._capacity = capacity
        self._k: Tensor | None = None
        self._v: Tensor | None = None

    def append(self, k_BGTK: Tensor, v_BGTK: Tensor, positions: Positions) -> tuple[Tensor, Tensor, Positions]:
        """Add T tokens; returns all keys, all values and their positions."""
        self.add(k_BGTK, v_BGTK, positions)
        return self.since(0)

    def add(self, k_BGTK: Tensor, v_BGTK: Tensor, positions: Positions) -> None:
        """Add T tokens."""
        start, self.length = self.length, self.length + k_BGTK.shape[2]
        self._k = _written(self._k, k_BGTK, start, self._capacity)
        self._v = _written(self._v, v_BGTK, start, self._capacity)
        self.positions = self.positions.then(positions, k_BGTK.device)

    def since(self, first: int) -> tuple[Tensor, Tensor, Positions]:
        """The keys, the values and their positions from slot `first` on."""
        assert self._k is not None and self._v is not None
        n, positions = self.length - first, self.positions
        positions = positions if first == 0 else positions.part(first, self.length)
        return self._k.narrow(2, first, n), self._v.narrow(2, first, n), positions

    def drop_front(self, n: int) -> None:
        """Forget the oldest `n` slots; the rest move to the front of the buffer."""
        assert self._k is not None and self._v is not None
        if self._k.requires_grad:
            self._k, self._v = self._k[:, :, n : self.length], self._v[:, :, n : self.length]
        else:
            for buffer in (self._k, self._v):
                # Through a copy: the two ranges may overlap.
                buffer[:, :, : self.length - n] = buffer[:, :, n : self.length].clone()
        self.positions = self.positions.part(n, self.length)
        self.length -= n

    def can_truncate(self, length: int) -> bool:
        return 0 <= length <= self.length

    def truncate(self, length: int) -> None:
        self.length = length
        self.positions = self.positions.part(0, length)

    def select(self, rows: Int[Tensor, "b"]) -> None:
        if self._k is not None and self._v is not None:
            with torch.inference_mode(False):
                self._k, self._v = self._k.index_select(0, rows), self._v.index_select(0, rows)
        self.positions = self.positions.select(rows)

    def tensors(self) -> dict[str, Tensor]:
        if self._k is None or self._v is None:
            return {}
        return {"k": self._k[:, :, : self.length], "v": self._v[:, :, : self.length]}


class WindowState:
    """Keys and values of the last `window` tokens, in order. The window counts the token that looks.

    A buffer a quarter longer than the window slides: what fell out is overwritten when the buffer is full.
    """

    def __init__(self, window: int) -> None:
        self.length = 0
        self.window = window
        self.slides = True
        """False keeps what fell out too, so that the text can be cut back anywhere; no token looks at it."""
        self._dropped = 0
        self._capacity = window + max(window // 4, 16)
        self._kept = KVState(self._capacity)

    def append(self, k_BGTK: Tensor, v_BGTK: Tensor, positions: Positions) -> tuple[Tensor, Tensor, Positions]:
        """Add T tokens; returns the keys and values any of them may see, and their positions."""
        n_new = k_BGTK.shape[2]
        self.length += n_new
        self._drop_unreachable(n_new)
        kept = self._kept
        kept.add(k_BGTK, v_BGTK, positions)
        if kept.positions.span is None:
            return kept.since(0)
        # In rows alike, the oldest key in reach of the first new token is known without looking.
        return kept.since(max(0, kept.length - n_new - (self.window - 1)))

    @property
    def held(self) -> KVState:
        """The slots that are there: those in reach, and before them some that no token will see any more."""
        return self._kept

    @property
    def dropped(self) -> int:
        """How many slots came before those and are gone."""
        return self._dropped

    @property
    def capacity(self) -> int:
        """How many slots it holds before it drops some, unless more come at once."""
        return self._capacity

    def resume(self, dropped: int, k_BGSK: Tensor, v_BGSK: Tensor, positions: Positions) -> None:
        """Go on, while empty, from the last slots of a text whose first `dropped` ones are gone."""
        self._kept.append(k_BGSK, v_BGSK, positions)
        self._dropped, self.length = dropped, dropped + k_BGSK.shape[2]

    def _drop_unreachable(self, n_new: int) -> None:
        """Make room when the buffer is full, by moving what is still in reach to its front."""
        kept = self._kept
        if kept.length + n_new <= self._capacity or kept.length == 0 or not self.slides:
            return
        if kept.positions.span is not None:
            first = max(0, kept.length - (self.window - 1))
        else:
            # Rows may be padded anywhere: keep from the first slot that some row's next token can reach.
            rows_BS = kept.positions.rows(torch.device("cpu"))
            reach_B1 = rows_BS.max(dim=1, keepdim=True).values - (self.window - 2)
            reachable_S = (rows_BS >= reach_B1.clamp(min=0)).any(dim=0)
            first = int(reachable_S.int().argmax()) if bool(reachable_S.any()) else kept.length
        if first > 0:
            kept.drop_front(first)
            self._dropped += first

    def can_truncate(self, length: int) -> bool:
        if not 0 <= length <= self.length:
            return False
        if self._dropped == 0:
            return True
        kept = length - self._dropped
        if self._kept.positions.span is not None or self.window == 1:
            return kept >= self.window - 1
        if kept <= 0:
            return False
        # Padding takes slots and no reach: in every row, all that the next token sees must still be there. Of a row
        # with nothing there it can't be told whether it has read anything.
        rows_BS = self._kept.positions.part(0, kept).rows(torch.device("cpu"))
        n_read_B = rows_BS.amax(dim=1) + 1
        n_there_B = (rows_BS >= 0).sum(dim=1)
        return bool(((n_there_B >= n_read_B.clamp(max=self.window - 1)) & (n_read_B > 0)).all())

    def truncate(self, length: int) -> None:
        self.length = length
        self._kept.truncate(length - self._dropped)

    def select(self, rows: Int[Tensor, "b"]) -> None:
        self._kept.select(rows)

    def tensors(self) -> dict[str, Tensor]:
        return {name: x[:, :, -self.window :] for name, x in self._kept.tensors().items()}


class CrossState:
    """Keys and values of the source, (B, G, S, K) each: made once, and the same however long the text grows."""

    length = 0

    def __init__(self) -> None:
        self.kept: tuple[Tensor, Tensor, Positions] | None = None

    def fill(self, k_BGSK: Tensor, v_BGSK: Tensor, positions: Positions) -> None:
        """Keep a source, in place of any before."""
        self.kept = (k_BGSK, v_BGSK, positions)

    def clear(self) -> None:
        """Forget the source."""
        self.kept = None

    def can_truncate(self, length: int) -> bool:
        return True

    def truncate(self, length: int) -> None:
        """The text is cut; the source stays."""

    def select(self, rows: Int[Tensor, "b"]) -> None:
        if self.kept is not None:
            k, v, positions = self.kept
            with torch.inference_mode(False):
                self.kept = k.index_select(0, rows), v.index_select(0, rows), positions.select(rows)

    def tensors(self) -> dict[str, Tensor]:
        return {} if self.kept is None else {"k": self.kept[0], "v": self.kept[1]}


class LatentState:
    """What latent attention keeps of every token, (B, 1, S, C + R): the vector that its keys and values are made from,
    and the rotated part of its key.
    """

    def __init__(self, capacity: int | None = None) -> None:
        self.length = 0
        self.positions = Positions(span=(0, 0))
        self._capacity = capacity
        self._kept: Tensor | None = None

    def append(self, new_B1TE: Tensor, positions: Positions) -> tuple[Tensor, Positions]:
        """Add T tokens; returns what is kept of all, and their positions."""
        start, self.length = self.length, self.length + new_B1TE.shape[2]
        self._kept = _written(self._kept, new_B1TE, start, self._capacity)
        self.positions = self.positions.then(positions, new_B1TE.device)
        return self._kept[:, :, : self.length], self.positions

    def can_truncate(self, length: int) -> bool:
        return 0 <= length <= self.length

    def truncate(self, length: int) -> None:
        self.length = length
        self.positions = self.positions.part(0, length)

    def select(self, rows: Int[Tensor, "b"]) -> None:
        if self._kept is not None:
            with torch.inference_mode(False):
                self._kept = self._kept.index_select(0, rows)
        self.positions = self.positions.select(rows)

    def tensors(self) -> dict[str, Tensor]:
        return {} if self._kept is None else {"latent": self._kept[:, :, : self.length]}


class RunningState:
    """What has one size however long the text, so that a longer text can't be cut back to a shorter one; only what
    there was before the last pass is remembered beside.
    """

    def __init__(self) -> None:
        self.length = 0
        self._kept: dict[str, Tensor] = {}
        self._before: tuple[int, dict[str, Tensor]] | None = None

    def _recall(self) -> dict[str, Tensor]:
        """What is kept; nothing where nothing was read."""
        if not torch.is_inference_mode_enabled():
            self._kept = {name: x.clone() if x.is_inference() else x for name, x in self._kept.items()}
        return self._kept

    def _keep(self, n_new: int, kept: dict[str, Tensor]) -> None:
        """Note what there is after `n_new` more slots."""
        self._before = (self.length, self._kept)
        self.length, self._kept = self.length + n_new, kept

    def can_truncate(self, length: int) -> bool:
        return length in (0, self.length) or (self._before is not None and length == self._before[0])

    def truncate(self, length: int) -> None:
        if length == self.length:
            return
        self._kept = {} if length == 0 or self._before is None else self._before[1]
        self.length, self._before = length, None

    def select(self, rows: Int[Tensor, "b"]) -> None:
        self._kept = _selected(self._kept, rows)
        if self._before is not None:
            self._before = (self._before[0], _selected(self._before[1], rows))

    def tensors(self) -> dict[str, Tensor]:
        return dict(self._kept)


class ScanState(RunningState):
    """What a state-space layer keeps: the last inputs of its convolution, (B, W, C), and its state, (B, ..., N)."""

    def recall(self) -> tuple[Tensor, Tensor] | tuple[None, None]:
        """The tail of the convolution and the state, or None for both where nothing was read."""
        kept = self._recall()
        return (kept["tail"], kept["state"]) if kept else (None, None)

    def keep(self, n_new: int, tail: Tensor, state: Tensor) -> None:
        """Note what there is after `n_new` more slots."""
        self._keep(n_new, {"tail": tail, "state": state})


class RecurrentState(RunningState):
    """What a recurrent network keeps: its hidden vector, (B, F), and an LSTM its cell beside."""

    def recall(self) -> Memory | None:
        """Where it has come to; None where nothing was read."""
        kept = self._recall()
        return Memory(kept["hidden"], kept.get("cell")) if kept else None

    def keep(self, n_new: int, memory: Memory) -> None:
        """Note what there is after `n_new` more slots."""
        self._keep(n_new, {name: x for name, x in memory._asdict().items() if x is not None})


def _selected(kept: dict[str, Tensor], rows: Tensor) -> dict[str, Tensor]:
    """These rows of what is kept."""
    with torch.inference_mode(False):
        return {name: x.index_select(0, rows) for name, x in kept.items()}


def _written(buffer: Tensor | None, new_BGTK: Tensor, start: int, capacity: int | None) -> Tensor:
    """`new_BGTK` written behind the first `start` slots of `buffer`, in a larger buffer when there is no room."""
    stop = start + new_BGTK.shape[2]
    if new_BGTK.requires_grad and torch.is_grad_enabled():
        # A gradient flows through what is kept, which must then not be overwritten later.
        return new_BGTK if buffer is None or start == 0 else torch.cat([buffer[:, :, :start], new_BGTK], dim=2)
    if buffer is None or buffer.shape[2] < stop:
        n_rows, n_heads, _, width = new_BGTK.shape
        room = max(stop, capacity or 0) if buffer is None else max(2 * buffer.shape[2], stop)
        # Not an inference tensor even inside inference mode: a later pass may write to it outside.
        with torch.inference_mode(False):
            larger = torch.empty((n_rows, n_heads, room, width), dtype=new_BGTK.dtype, device=new_BGTK.device)
        if buffer is not None:
            larger[:, :, :start] = buffer[:, :, :start].detach()
        buffer = larger
    buffer[:, :, start:stop] = new_BGTK
    return buffer
