"""What a model remembers of the tokens it has read, so that the next token costs one step and not a whole pass."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.layer_state import CrossState, LayerState
from clearhead.ops.masks import Positions

T = TypeVar("T")


class State:
    """A model's memory of one batch. It is empty until a pass fills it, and each pass that is given it adds to it."""

    def __init__(self, layers: dict[str, LayerState]) -> None:
        self.restart(layers)

    def restart(self, layers: dict[str, LayerState]) -> None:
        """Forget everything, and go on with these empty layer states."""
        self._layers = layers
        self.positions = Positions(span=(0, 0))
        self.next: int | Tensor = 0
        """The position of the next token: one number, or one a row, (B,)."""
        self.tokens: Tensor | None = None
        """What was read, (B, S): kept only for models that may have to read it again."""
        self.read_as: int | Tensor = 0
        """How long the texts were when last read, (B,) or one number: what is kept was computed of that length."""
        self._worked_out: dict[Hashable, tuple[int, Any]] = {}

    @property
    def length(self) -> int:
        """How many slots were read, padding included."""
        return len(self.positions)

    @property
    def layers(self) -> list[LayerState]:
        return list(self._layers.values())

    @property
    def by_path(self) -> Mapping[str, LayerState]:
        """The states of the sub-layers, by their addresses."""
        return self._layers

    @property
    def has_source(self) -> bool:
        """Whether it holds what cross-attention looks at."""
        return any(isinstance(layer, CrossState) and layer.kept is not None for layer in self.layers)

    def forget_source(self) -> None:
        """Drop what cross-attention looks at."""
        for layer in self.layers:
            if isinstance(layer, CrossState):
                layer.clear()

    def read_again(self, fresh: dict[str, LayerState]) -> None:
        """Forget the text, to read it again into `fresh`; the source stays."""
        kept = {path: layer for path, layer in self._layers.items() if isinstance(layer, CrossState)}
        self.restart({**fresh, **kept})

    def once(self, key: Hashable, stretch: int, make: Callable[[], T]) -> T:
        """What `make` returns, made when it is first asked for in this stretch of the text; that of the stretch before
        is let go of. It may depend on nothing but the two, and is a plain tensor or a tuple of such.
        """
        known = self._worked_out.get(key)
        if known is None or known[0] != stretch:
            with torch.inference_mode(False), torch.no_grad():
                known = self._worked_out[key] = stretch, make()
        value: T = known[1]
        return value

    def at(self, path: str) -> LayerState:
        """The state of the sub-layer at `path`."""
        return self._layers[path]

    @property
    def n_rows(self) -> int | None:
        """How many texts it holds; None while it is empty."""
        return next((x.shape[0] for layer in self.layers for x in layer.tensors().values()), None)

    @property
    def nbytes(self) -> int:
        """Bytes held for the tokens read so far."""
        return sum(x.nbytes for layer in self.layers for x in layer.tensors().values())

    def advance(self, positions: Positions, device: torch.device) -> None:
        """Note that a pass over tokens at `positions` has begun."""
        self.positions = self.positions.then(positions, device)
        self._count()
        self.read_as = self.next

    def undo(self, length: int) -> None:
        """After a pass that failed half way: back to the `length` slots there were before it.

        A window drops only what the first new token of a pass can't reach, so one pass can always be taken back.
        """
        for layer in self.layers:
            if layer.length > length:
                layer.truncate(length)
        self.positions = self.positions.part(0, min(length, self.length))
        if self.tokens is not None:
            self.tokens = self.tokens[:, :length]
        self._count()

    def can_truncate(self, length: int) -> bool:
        """Whether `truncate(length)` is possible in every layer."""
        return 0 <= length <= self.length and all(layer.can_truncate(length) for layer in self.layers)

    def truncate(self, length: int) -> None:
        """Forget all slots from `length` on.

        Raises:
            ClearheadError: a layer no longer has what is needed; nothing is changed then.
        """
        if not 0 <= length <= self.length:
            raise ClearheadError(f"a state of {self.length} tokens can't be cut to {length}")
        blocked = [path for path, layer in self._layers.items() if not layer.can_truncate(length)]
        if blocked:
            raise ClearheadError(
                f"{blocked[0]} does not keep every token and no longer holds what the first {length} of {self.length} "
                "tokens need; start a new state and read them again"
            )
        for layer in self.layers:
            layer.truncate(length)
        self.positions = self.positions.part(0, length)
        if self.tokens is not None:
            self.tokens = self.tokens[:, :length]
        self._count()

    def select(self, rows: Tensor | list[int], *, same_source: bool = False) -> None:
        """Keep these rows of the batch, in this order; a row may be named twice.

        `same_source`: each row takes the place of one with the same source, which so need not be copied.
        """
        device = next((x.device for layer in self.layers for x in layer.tensors().values()), torch.device("cpu"))
        rows = torch.as_tensor(rows, device=device)
        if isinstance(self.read_as, Tensor):
            self.read_as = self.read_as.index_select(0, rows.to(self.read_as.device))
        for layer in self.layers:
            if not (same_source and isinstance(layer, CrossState)):
                layer.select(rows)
        self.positions = self.positions.select(rows)
        if self.tokens is not None:
            self.tokens = self.tokens.index_select(0, rows)
        self._count()

    def _count(self) -> None:
        if self.positions.span is not None:
            self.next = self.positions.span[1]
        else:
            rows_BS = self.positions.rows(torch.device("cpu"))
            self.next = rows_BS.max(dim=1).values + 1 if rows_BS.shape[1] else rows_BS.new_zeros(rows_BS.shape[0])
