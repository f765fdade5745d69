"""Which query may see which key: predicates over absolute positions, and what the backends derive from them.

A `Mask` is a frozen value with one method, `allow(q_pos, k_pos, batch)`, and the operators `& | ~`. It works on
tensors that broadcast against each other, so one definition serves the dense matrix, a tile of it, and
FlexAttention's scalar calls. A `BoundMask` is a mask with the positions of one pass's queries and keys.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar, no_type_check

import torch
from jaxtyping import Bool, Int
from torch import Tensor

T = TypeVar("T")

ALL = slice(None)
NOWHERE = 2**62  # where padding is put when the least position is sought


class Mask:
    """A rule saying which key positions a query position may see.

    `None` never stands for a mask: say `Everything()` or `Causal()`.
    """

    def allow(self, q_pos: Tensor, k_pos: Tensor, batch: Tensor) -> Tensor:
        """True where the query may see the key. The arguments are integer tensors that broadcast together."""
        raise AssertionError(f"{type(self).__name__} defines no allow()")

    @property
    def n_rows(self) -> int:
        """How many rows of the batch it tells apart; 1 when it treats all alike."""
        return 1

    def __and__(self, other: Mask) -> Mask:
        return And(self, other)

    def __or__(self, other: Mask) -> Mask:
        return Or(self, other)

    def __invert__(self) -> Mask:
        return Not(self)


@dataclass(frozen=True)
class And(Mask):
    left: Mask
    right: Mask

    @property
    def n_rows(self) -> int:
        return max(self.left.n_rows, self.right.n_rows)

    def allow(self, q_pos: Tensor, k_pos: Tensor, batch: Tensor) -> Tensor:
        return self.left.allow(q_pos, k_pos, batch) & self.right.allow(q_pos, k_pos, batch)


@dataclass(frozen=True)
class Or(Mask):
    left: Mask
    right: Mask

    @property
    def n_rows(self) -> int:
        return max(self.left.n_rows, self.right.n_rows)

    def allow(self, q_pos: Tensor, k_pos: Tensor, batch: Tensor) -> Tensor:
        return self.left.allow(q_pos, k_pos, batch) | self.right.allow(q_pos, k_pos, batch)


@dataclass(frozen=True)
class Not(Mask):
    inner: Mask

    @property
    def n_rows(self) -> int:
        return self.inner.n_rows

    def allow(self, q_pos: Tensor, k_pos: Tensor, batch: Tensor) -> Tensor:
        return ~self.inner.allow(q_pos, k_pos, batch)


@dataclass(frozen=True)
class Everything(Mask):
    """Every token sees every token (an encoder)."""

    def allow(self, q_pos: Tensor, k_pos: Tensor, batch: Tensor) -> Tensor:
        return (q_pos == q_pos) & (k_pos == k_pos)


@dataclass(frozen=True)
class Causal(Mask):
    """A token sees itself and what came before (a decoder)."""

    def allow(self, q_pos: Tensor, k_pos: Tensor, batch: Tensor) -> Tensor:
        return k_pos <= q_pos


@dataclass(frozen=True)
class Window(Mask):
    """A token sees no further back than `size` tokens, itself counted: q - k < size. It says nothing of the future."""

    size: int

    def allow(self, q_pos: Tensor, k_pos: Tensor, batch: Tensor) -> Tensor:
        return q_pos - k_pos < self.size


@dataclass(frozen=True)
class Around(Mask):
    """A token sees `reach` tokens on either side: |q - k| <= reach (an encoder's window)."""

    reach: int

    def allow(self, q_pos: Tensor, k_pos: Tensor, batch: Tensor) -> Tensor:
        return (q_pos - k_pos).abs() <= self.reach


@dataclass(frozen=True, eq=False)
class Prefix(Mask):
    """Everyone sees the first `length_B[b]` tokens of row b; use as `Causal() | Prefix(lengths)`."""

    length_B: Tensor

    @property
    def n_rows(self) -> int:
        return self.length_B.shape[0]

    def allow(self, q_pos: Tensor, k_pos: Tensor, batch: Tensor) -> Tensor:
        return (k_pos < self.length_B[batch]) & (q_pos == q_pos)


@dataclass(frozen=True, eq=False)
class Present(Mask):
    """Only keys that are there are seen: `present_BS[b, k_pos]`, for keys numbered by their column."""

    present_BS: Tensor

    @property
    def n_rows(self) -> int:
        return self.present_BS.shape[0]

    def allow(self, q_pos: Tensor, k_pos: Tensor, batch: Tensor) -> Tensor:
        return self.present_BS[batch, k_pos] & (q_pos == q_pos)


@dataclass(frozen=True, eq=False)
class SameDocument(Mask):
    """A token sees only its own document: `document_BS[b, position]` names each position's document."""

    document_BS: Tensor

    @property
    def n_rows(self) -> int:
        return self.document_BS.shape[0]

    def allow(self, q_pos: Tensor, k_pos: Tensor, batch: Tensor) -> Tensor:
        return self.document_BS[batch, q_pos] == self.document_BS[batch, k_pos]


class Positions:
    """The absolute positions of a run of tokens, the same for all rows or one list a row.

    Either `span = (start, stop)`: consecutive numbers, equal in all rows, known without reading a tensor; or a
    tensor of shape (B, T) in which -1 marks padding. Immutable, and each method remembers its last answer, so the
    layers of a model that append the same tokens to the same past share one object, and with it one mask.
    """

    def __init__(self, span: tuple[int, int] | None = None, rows_BT: Tensor | None = None) -> None:
        if (span is None) == (rows_BT is None):
            raise AssertionError("positions are a span or rows, one of the two")
        self.span = span
        self._rows_BT = rows_BT
        self._last: dict[str, tuple[object, Positions]] = {}

    def anew(self) -> Positions:
        """The same positions, without what they remember."""
        return Positions(span=self.span) if self.span is not None else Positions(rows_BT=self._rows_BT)

    def __len__(self) -> int:
        if self.span is not None:
            return self.span[1] - self.span[0]
        assert self._rows_BT is not None
        return self._rows_BT.shape[1]

    def rows(self, device: torch.device) -> Int[Tensor, "B T"]:
        """As a tensor: (1, T) for a span, (B, T) otherwise."""
        if self._rows_BT is None:
            assert self.span is not None
            self._rows_BT = torch.arange(*self.span, device=device)[None]
        return self._rows_BT

    def then(self, more: Positions, device: torch.device) -> Positions:
        """These positions followed by `more`."""

        def join() -> Positions:
            if len(self) == 0:
                return more
            if self.span is not None and more.span is not None and self.span[1] == more.span[0]:
                return Positions(span=(self.span[0], more.span[1]))
            a_BS, b_BT = self.rows(device), more.rows(device)
            n_rows = max(a_BS.shape[0], b_BT.shape[0])
            return Positions(rows_BT=torch.cat([a_BS.expand(n_rows, -1), b_BT.expand(n_rows, -1)], dim=1))

        return self._remember("then", more, join)

    def part(self, start: int, stop: int) -> Positions:
        """Those from slot `start` up to slot `stop`."""

        def cut() -> Positions:
            if (start, stop) == (0, len(self)):
                return self
            if self.span is not None:
                return Positions(span=(self.span[0] + start, self.span[0] + stop))
            assert self._rows_BT is not None
            return Positions(rows_BT=self._rows_BT[:, start:stop])

        return self._remember("part", (start, stop), cut)

    def select(self, rows: Tensor) -> Positions:
        """Those of these rows of the batch."""
        if self.span is not None:
            return self
        assert self._rows_BT is not None
        all_BT = self._rows_BT
        return self._remember("select", rows, lambda: Positions(rows_BT=all_BT.index_select(0, rows)))

    def _remember(self, what: str, key: object, make: Callable[[], Positions]) -> Positions:
        last = self._last.get(what)
        if last is not None and (last[0] is key or (isinstance(key, tuple) and last[0] == key)):
            return last[1]
        made = make()
        self._last[what] = (key, made)
        return made


class Extent(NamedTuple):
    """The least position of a run of tokens, and one more than the greatest."""

    start: int
    stop: int
    complete: bool
    """Whether none of the tokens is padding."""


@no_type_check  # for the hook that checks shapes in tests: torch.compile can't look through what it makes of __get__
class cached_property(Generic[T]):
    """As functools has it, without the lock that it has in Python 3.11, before which torch.compile stops."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self.make, self.name = make, make.__name__
        self.__doc__ = make.__doc__

    def __get__(self, whose: Any, kind: type) -> T:
        value = self.make(whose)
        object.__setattr__(whose, self.name, value)
        return value


@dataclass(frozen=True, eq=False)
class BoundMask:
    """A mask and the positions it is asked about. A key at a negative position is not there: nobody sees it.

    The dense matrix, the block mask and the shortcuts are derived when asked for, and kept.
    """

    mask: Mask
    queries: Positions
    keys: Positions
    device: torch.device

    @cached_property
    def n_rows(self) -> int:
        """The rows of the batch that are told apart: 1 when all are alike."""
        positions = (p.rows(self.device).shape[0] for p in (self.queries, self.keys) if p.span is None)
        return max(self.mask.n_rows, *positions, 1)

    def grid(
        self, q_slots: slice = ALL, k_slots: slice = ALL, rows: slice = ALL
    ) -> tuple[Int[Tensor, "#b 1 t 1"], Int[Tensor, "#b 1 1 s"]]:
        """The positions of a tile's queries and of its keys, in shapes that broadcast to its cells."""
        q_rows, k_rows = self.queries.rows(self.device), self.keys.rows(self.device)
        q_pos = q_rows[rows if q_rows.shape[0] > 1 else ALL, None, q_slots, None]
        k_pos = k_rows[rows if k_rows.shape[0] > 1 else ALL, None, None, k_slots]
        return q_pos, k_pos

    def allow(self, q_slots: slice = ALL, k_slots: slice = ALL, rows: slice = ALL) -> Bool[Tensor, "b 1 t s"]:
        """The cells of a tile, (B or 1, 1, t, s); of the whole matrix when no slots are named."""
        q_pos, k_pos = self.grid(q_slots, k_slots, rows)
        batch = torch.arange(self.n_rows, device=self.device)[rows if self.n_rows > 1 else ALL, None, None, None]
        allowed = self.mask.allow(q_pos, k_pos, batch)
        return allowed if self.keys.span is not None else allowed & (k_pos >= 0)

    def tile(self, q_slots: slice, k_slots: slice, rows: slice = ALL) -> Tensor | bool:
        """The cells of a tile as `allow` gives them; True where all of them are seen and False where none is.

        Slots are slices with a start and a stop. The positions' extents settle most tiles; only the rest is made.
        """
        queries = self._extent(True, q_slots.start, q_slots.stop, rows.start, rows.stop)
        keys = self._extent(False, k_slots.start, k_slots.stop, rows.start, rows.stop)
        if keys.stop <= 0 or sees_none(self.mask, queries, keys):
            return False
        if keys.complete and sees_all(self.mask, queries, keys):
            return True
        cells = self.allow(q_slots, k_slots, rows)
        n_seen = int(cells.sum())
        return cells if 0 < n_seen < cells.numel() else n_seen > 0

    def _extent(self, of_queries: bool, start: int, stop: int, first: int | None, last: int | None) -> Extent:
        key = (of_queries, start, stop, first, last)
        if key not in self._extents:
            positions = self.queries if of_queries else self.keys
            if positions.span is not None:
                base = positions.span[0]
                self._extents[key] = Extent(base + start, min(base + stop, positions.span[1]), True)
            else:
                every_row = positions.rows(self.device)
                part = every_row[slice(first, last) if every_row.shape[0] > 1 else ALL, start:stop]
                there = part if of_queries else part.where(part >= 0, NOWHERE)
                least, low, high = torch.stack([part.amin(), there.amin(), part.amax()]).tolist()
                self._extents[key] = Extent(int(low), int(high) + 1, of_queries or least >= 0)
        return self._extents[key]

    @cached_property
    def _extents(self) -> dict[tuple[bool, int, int, int | None, int | None], Extent]:
        return {}

    @cached_property
    def kept(self) -> dict[Hashable, Any]:
        """What a backend derives from this mask and keeps for the other layers."""
        return {}

    @cached_property
    def dense(self) -> Bool[Tensor, "B 1 T S"]:
        """The whole matrix, (B or 1, 1, T, S)."""
        return self.allow()

    @cached_property
    def is_plain_causal(self) -> bool:
        """Whether it is the square causal mask, known without reading a tensor."""
        return self.mask == Causal() and self.queries.span is not None and self.queries.span == self.keys.span

    @cached_property
    def documents(self) -> tuple[tuple[int, ...], ...] | None:
        """How long the documents of each row are, where they stand whole one behind another, tokens see nothing beyond
        their own, and within it all or what came before (`is_causal`). Reads a tensor.
        """
        match self.mask:
            case And(own, SameDocument(document_BS)):
                n = document_BS.shape[1]
                if self.queries.span != (0, n) or self.keys.span != (0, n):
                    return None
            case _:
                return None
        steps_BS = document_BS.diff(dim=1)
        if bool((steps_BS < 0).any()):
            return None  # one may come back
        found = tuple(tuple(torch.unique_consecutive(row_S, return_counts=True)[1].tolist()) for row_S in document_BS)
        longest = Extent(0, max(map(max, found), default=0), True)
        hides = own.right if isinstance(own, And) and own.left == Causal() else own
        return found if hides == Causal() or sees_all(hides, longest, longest) else None

    @property
    def is_causal(self) -> bool:
        """Whether the layer's own part of the mask hides what comes later, whatever is ANDed to it."""
        own = self.mask
        while isinstance(own, And):
            own = own.left
        return own == Causal()

    @cached_property
    def sees_all(self) -> bool:
        """Whether every query sees every key, known without reading a tensor."""
        if self.queries.span is None or self.keys.span is None:
            return False
        return sees_all(self.mask, Extent(*self.queries.span, True), Extent(*self.keys.span, True))


def sees_all(mask: Mask, queries: Extent, keys: Extent) -> bool:
    """Whether `mask` hides nothing between two runs of positions; False when it can't be told from them alone."""
    match mask:
        case Everything():
            return True
        case Causal():
            return keys.stop - 1 <= queries.start
        case Window(size):
            return queries.stop - 1 - keys.start < size
        case Around(reach):
            return max(queries.stop - 1 - keys.start, keys.stop - 1 - queries.start) <= reach
        case And(left, right):
            return sees_all(left, queries, keys) and sees_all(right, queries, keys)
        case Or(left, right):
            return sees_all(left, queries, keys) or sees_all(right, queries, keys)
        case Not(inner):
            return sees_none(inner, queries, keys)
    return False


def sees_none(mask: Mask, queries: Extent, keys: Extent) -> bool:
    """Whether `mask` hides everything between two runs of positions; False when it can't be told from them alone."""
    match mask:
        case Causal():
            return keys.start > queries.stop - 1
        case Window(size):
            return queries.start - (keys.stop - 1) >= size
        case Around(reach):
            return max(queries.start - (keys.stop - 1), keys.start - (queries.stop - 1)) > reach
        case And(left, right):
            return sees_none(left, queries, keys) or sees_none(right, queries, keys)
        case Or(left, right):
            return sees_none(left, queries, keys) and sees_none(right, queries, keys)
        case Not(inner):
            return sees_all(inner, queries, keys)
    return False


def bind(mask: Mask, n_queries: int, n_keys: int, device: torch.device | str = "cpu") -> BoundMask:
    """Bind `mask` to the last `n_queries` of `n_keys` tokens: the newest query is at the newest key.

    With two queries and five keys under `Causal()`, the first query sees keys 0 to 3 and the second 0 to 4.
    """
    return BoundMask(
        mask, Positions(span=(n_keys - n_queries, n_keys)), Positions(span=(0, n_keys)), torch.device(device)
    )
