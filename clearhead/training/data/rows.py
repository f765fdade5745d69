"""How documents become rows: end to end, each in rows of its own, in pairs, or with a label.

Stored ids have no marks; they are put around documents and rows here. A document with its marks is counted in slots.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from clearhead.errors import ClearheadError
from clearhead.ops.losses import IGNORE
from clearhead.training.data.documents import Share, is_held_out
from clearhead.training.data.shards import TokenStore

Ids = NDArray[np.int64]
Row = dict[str, NDArray[Any]]
"""The arrays of one row, by name: `tokens` (T), `targets` (T) or (), `documents` (T), `source` (S)."""
Longer = Literal["refuse", "drop", "cut"]
POOL = 64
"""Rows of like length are sought among so many batches at a time."""


@dataclass(frozen=True, kw_only=True)
class Marks:
    """The special tokens that stand around texts."""

    before_row: tuple[int, ...] = ()
    after_row: tuple[int, ...] = ()
    before_document: tuple[int, ...] = ()
    after_document: tuple[int, ...] = ()
    end: int | None = None
    """What is to be told behind the last slot of a document; None is nothing."""

    @property
    def all(self) -> tuple[int, ...]:
        ends = () if self.end is None else (self.end,)
        return self.before_row + self.after_row + self.before_document + self.after_document + ends


class Spans(NamedTuple):
    """Parts of documents: slots from `starts` to `stops` of `documents`, all (N)."""

    documents: Ids
    starts: Ids
    stops: Ids


class Rows(Protocol):
    """All rows of one part of the data."""

    def epoch(self, rng: np.random.Generator | None) -> Epoch:
        """The rows of one epoch, in an order drawn from `rng`; None is all of them in the order of the data."""
        ...


class Epoch(NamedTuple):
    """The rows of one epoch in order."""

    n: int
    row: Callable[[int], Row]


# ---- what is learnt from, and what is held out


def split_records(store: TokenStore, share: Share, seed: int) -> tuple[Ids, Ids]:
    """The records to learn from and those held out, by number; ones with an empty text are neither.

    Raises:
        ClearheadError: no file is held out, or every one is.
    """
    lengths = store.lengths.reshape(store.n_records, store.n_columns)
    records = np.flatnonzero((lengths > 0).all(axis=1))
    if isinstance(share, str):
        held = store.named(share)[records]
        if held.all() or not held.any():
            names = ", ".join(source.name for source in store.sources[:5])
            which = "every file" if held.all() else "no file"
            raise ClearheadError(f"{which} matches the pattern of what is held out, {share!r}; there are {names}")
    else:
        held = is_held_out(store.keys[records], share, seed) if share > 0 else np.zeros(len(records), bool)
    return records[~held], records[held]


def split_documents(store: TokenStore, marks: Marks, share: Share, seed: int) -> tuple[Spans, Spans]:
    """Documents to learn from and those held out; where there are too few to tell them apart, the end of each is.

    Raises:
        ClearheadError: the store is of pairs.
    """
    if store.n_columns != 1:
        raise ClearheadError(f"documents have one column, and these records have {store.n_columns}")
    learnt, held = split_records(store, share, seed)
    sizes = store.lengths + len(marks.before_document) + len(marks.after_document)
    if isinstance(share, str) or share == 0 or (len(learnt) and len(held)):
        return _whole(learnt, sizes), _whole(held, sizes)
    every = np.sort(np.concatenate([learnt, held]))
    every = every[sizes[every] > 1]
    cuts = sizes[every] - np.maximum((sizes[every] * share).astype(np.int64), 1)
    return Spans(every, np.zeros_like(cuts), cuts), Spans(every, cuts, sizes[every])


def _whole(documents: Ids, sizes: Ids) -> Spans:
    return Spans(documents, np.zeros(len(documents), np.int64), sizes[documents])


# ---- running text


class Text:
    """Parts of documents with their marks, in slots."""

    def __init__(self, store: TokenStore, spans: Spans, marks: Marks) -> None:
        self.store, self.spans, self.marks = store, spans, marks
        self.sizes = spans.stops - spans.starts

    def read(self, span: int, first: int, n: int) -> tuple[Ids, Ids]:
        """`n` slots of a span from its slot `first` on, and what follows each."""
        document, start = int(self.spans.documents[span]), int(self.spans.starts[span])
        framed = self._framed(document, start + first, start + first + n + 1)
        if len(framed) == n:
            framed = np.append(framed, IGNORE if self.marks.end is None else self.marks.end)
        return framed[:n], framed[1:]

    def _framed(self, document: int, first: int, stop: int) -> Ids:
        """Slots `first` to `stop` of a document, or as far as it goes."""
        before, after = self.marks.before_document, self.marks.after_document
        n_before, n_ids = len(before), int(self.store.lengths[document])
        ids = self.store.document(document, max(first - n_before, 0), max(stop - n_before, 0))
        rest = [max(at - n_before - n_ids, 0) for at in (first, stop)]
        return np.concatenate([before[first:stop], ids, after[slice(*rest)]]).astype(np.int64)


class Packed:
    """Documents end to end, cut into rows of one length; the last few slots of an epoch that fill no row wait for
    another one.
    """

    def __init__(self, text: Text, length: int, *, apart: bool) -> None:
        """apart: the documents of a row get numbers, by which the model keeps them from seeing each other."""
        self.text, self.apart = text, apart
        self.body = length - len(text.marks.before_row) - len(text.marks.after_row)
        self.total = int(text.sizes.sum())

    def epoch(self, rng: np.random.Generator | None) -> Epoch:
        n = len(self.text.sizes)
        if rng is None:
            order = np.arange(n)
            ends = np.cumsum(self.text.sizes)
            return Epoch(-(-self.total // self.body), lambda i: self._row(order, ends, i * self.body, circle=False))
        order = rng.permutation(n)
        ends = np.cumsum(self.text.sizes[order])
        # Begun at another slot, other ends are left over, and a long document is cut elsewhere.
        offset = int(rng.integers(max(self.total, 1)))
        rows = rng.permutation(self.total // self.body)
        return Epoch(len(rows), lambda i: self._row(order, ends, offset + int(rows[i]) * self.body, circle=True))

    def _row(self, order: Ids, ends: Ids, first: int, *, circle: bool) -> Row:
        """The row from slot `first` on of the documents in this order."""
        left = self.body if circle else min(self.body, self.total - first)
        parts: list[tuple[Ids, Ids]] = []
        while left:
            first %= self.total
            at = int(np.searchsorted(ends, first, side="right"))
            span = int(order[at])
            n = min(left, int(ends[at]) - first)
            parts.append(self.text.read(span, int(self.text.sizes[span]) - (int(ends[at]) - first), n))
            first, left = first + n, left - n
        marks = self.text.marks
        row = _around(np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts]), marks)
        if self.apart:
            counts = np.array([len(tokens) for tokens, _ in parts])
            counts[0] += len(marks.before_row)
            counts[-1] += len(marks.after_row)
            row["documents"] = np.repeat(np.arange(len(parts)), counts)
        return row


class Separate:
    """Each document in rows of its own, as many as it needs."""

    def __init__(self, text: Text, length: int, n_together: int) -> None:
        self.text, self.n_together = text, n_together
        self.body = length - len(text.marks.before_row) - len(text.marks.after_row)
        self.ends = np.cumsum(-(-text.sizes // self.body))

    def epoch(self, rng: np.random.Generator | None) -> Epoch:
        n = int(self.ends[-1]) if len(self.ends) else 0
        last = self.text.sizes - (-(-self.text.sizes // self.body) - 1) * self.body
        lengths = np.full(n, self.body)
        lengths[self.ends - 1] = last
        order = by_length(lengths, rng, self.n_together)
        return Epoch(n, lambda i: self._row(int(order[i])))

    def _row(self, number: int) -> Row:
        span = int(np.searchsorted(self.ends, number, side="right"))
        size = int(self.text.sizes[span])
        first = (number - int(self.ends[span])) * self.body + -(-size // self.body) * self.body
        return _around(*self.text.read(span, first, min(self.body, size - first)), self.text.marks)


def _around(tokens_T: Ids, targets_T: Ids, marks: Marks) -> Row:
    """A row between its marks, which are never told."""
    before, after = marks.before_row, marks.after_row
    return {
        "tokens": np.concatenate([before, tokens_T, after]).astype(np.int64),
        "targets": np.pad(targets_T, (len(before), len(after)), constant_values=IGNORE),
    }


def by_length(lengths_N: Ids, rng: np.random.Generator | None, n_together: int) -> Ids:
    """An order in which rows that are read together are of like length, so that little is padding; each row once."""
    if rng is None:
        return np.arange(len(lengths_N))
    order = rng.permutation(len(lengths_N))
    pool = n_together * POOL
    sorted_ = [
        part[np.argsort(lengths_N[part], kind="stable")]
        for part in (order[i : i + pool] for i in range(0, len(order), pool))
    ]
    order = np.concatenate([*sorted_, order[:0]])
    n_full = len(order) // n_together
    full = order[: n_full * n_together].reshape(n_full, n_together)
    return np.concatenate([full[rng.permutation(n_full)].reshape(-1), order[n_full * n_together :]])


# ---- pairs and labels


class Pairs:
    """A source and a target a row: the decoder reads `start` and the target, and tells the target and the end."""

    def __init__(
        self, store: TokenStore, records: Ids, source: Marks, target: Marks, lengths: tuple[int, int], n_together: int
    ) -> None:
        self.store, self.records, self.source, self.target = store, records, source, target
        self.lengths, self.n_together = lengths, n_together

    def epoch(self, rng: np.random.Generator | None) -> Epoch:
        sizes = self.store.lengths.reshape(-1, 2)[self.records]
        order = by_length(sizes.max(axis=1), rng, self.n_together)
        return Epoch(len(order), lambda i: self._row(int(self.records[order[i]])))

    def _row(self, record: int) -> Row:
        before, end = self.target.before_document, self.target.end
        ids = self.store.document(2 * record + 1)
        whole = np.concatenate([before, ids, [IGNORE if end is None else end]]).astype(np.int64)
        n = min(len(whole) - 1, self.lengths[1])
        targets_T = whole[1 : n + 1].copy()
        targets_T[: len(before) - 1] = IGNORE
        return {
            "source": framed(self.store.document(2 * record), self.source, self.lengths[0]),
            "tokens": whole[:n],
            "targets": targets_T,
        }


class Labelled:
    """A text and what it is, a row."""

    def __init__(
        self, store: TokenStore, records: Ids, targets: NDArray[Any], marks: Marks, length: int, n_together: int
    ) -> None:
        """targets: (all records), whole numbers for labels, real ones for values."""
        self.store, self.records, self.targets, self.marks = store, records, targets, marks
        self.length, self.n_together = length, n_together

    def epoch(self, rng: np.random.Generator | None) -> Epoch:
        order = by_length(self.store.lengths[self.records], rng, self.n_together)
        return Epoch(len(order), lambda i: self._row(int(self.records[order[i]])))

    def _row(self, record: int) -> Row:
        tokens_T = framed(self.store.document(record), self.marks, self.length)
        return {"tokens": tokens_T, "targets": self.targets[record]}


def framed(ids: NDArray[Any], marks: Marks, length: int) -> Ids:
    """A text between a row's marks, its end cut off where it is too long."""
    room = length - len(marks.before_row) - len(marks.after_row)
    return np.concatenate([marks.before_row, ids[:room], marks.after_row]).astype(np.int64)


def that_fit(store: TokenStore, records: Ids, n_marks: Sequence[int], lengths: Sequence[int], longer: Longer) -> Ids:
    """The records whose every column has room in its length, with its marks; all of them where the rest is cut.

    Raises:
        ClearheadError: one has not, and `longer` is "refuse"; or none has.
    """
    if longer == "cut":
        return records
    sizes = store.lengths.reshape(store.n_records, -1)[records] + np.array(n_marks)
    fits = (sizes <= np.array(lengths)).all(axis=1)
    if longer == "refuse" and not fits.all():
        first = int(np.flatnonzero(~fits)[0])
        column = int(np.flatnonzero(sizes[first] > np.array(lengths))[0])
        raise ClearheadError(
            f"{int((~fits).sum()):,} of {len(records):,} texts are longer than a row; the first is "
            f"{store.place(int(records[first]))}, of {int(sizes[first, column]):,} tokens with its marks, and rows "
            f'have {lengths[column]:,}. Make rows longer, or say longer="drop" or "cut"'
        )
    if len(records) and not fits.any():
        raise ClearheadError(
            f"all {len(records):,} texts are longer than a row of {max(lengths):,} tokens; make rows longer"
        )
    kept: Ids = records[fits]
    return kept
