"""The batch of every step: a pure function of the step's number, so that a run goes on from that number alone.

An epoch is every row once, in an order drawn from the seed and the epoch's number. Rows are counted on over epochs, so
a batch may hold the last rows of one and the first of the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from clearhead.config import LearnedPositions, SinusoidalPositions, StackConfig, TransformerConfig
from clearhead.errors import ClearheadError, UsageError
from clearhead.generation.prompts import window
from clearhead.ops.losses import IGNORE
from clearhead.training.config import MaskingConfig
from clearhead.training.data.documents import Share
from clearhead.training.data.masking import Masker
from clearhead.training.data.rows import (
    Epoch,
    Labelled,
    Longer,
    Marks,
    Packed,
    Pairs,
    Row,
    Rows,
    Separate,
    Spans,
    Text,
    split_documents,
    split_records,
    that_fit,
)

if TYPE_CHECKING:
    from clearhead.inputs.tokenizer import Tokenizer
    from clearhead.training.data.shards import TokenStore

Pack = Literal["documents", "plain", "rows"]
"""Rows are filled with documents that don't see each other, or with running text; or each has one document."""
ORDER, MASK, HELD_OUT = range(3)
"""What a random number is for."""


@dataclass(frozen=True)
class Batch:
    """What the model reads, and what it has to tell; tensors on the CPU."""

    inputs: dict[str, Tensor]
    """What `model(**inputs)` takes, rows first: tokens_BT, present, documents, source, source_present, ..."""
    targets: Tensor
    """IGNORE where there is none: (B, T) for tokens, (B,) for labels; real numbers for values."""

    @property
    def n_slots(self) -> int:
        """Places in the batch, padding and all: what the machine works on."""
        return next(iter(self.inputs.values())).shape[:2].numel()


class Batches(Protocol):
    """The data of a run."""

    def step(self, number: int) -> Batch:
        """The whole batch of the optimiser's step `number`, from 0 on without an end."""
        ...

    def describe(self) -> dict[str, Any]:
        """What must be the same for a run to go on, as JSON can say it."""
        ...

    def held_out(self) -> Iterator[Batch]:
        """Everything held out, once, in order."""
        ...

    def check(self, config: TransformerConfig) -> None:
        """Refuse a model that has no room for what is read."""
        ...


def split(batch: Batch, micro_rows: int) -> list[Batch]:
    """The rows of a batch in batches of at most `micro_rows`."""
    if micro_rows < 1:
        raise UsageError(f"micro_rows is {micro_rows}; it must be at least 1")
    return [
        Batch({name: x[i : i + micro_rows] for name, x in batch.inputs.items()}, batch.targets[i : i + micro_rows])
        for i in range(0, len(batch.targets), micro_rows)
    ]


def collate(rows: Sequence[Row], pad_id: int, length: int | None = None) -> Batch:
    """Rows as one batch, padded at their ends to the longest, or to `length`.

    What is padding is known from the lengths, never from the ids: `pad_id` may be a token that texts have too.
    """
    inputs: dict[str, Tensor] = {}
    for name, called, present in (("tokens", "tokens_BT", "present"), ("source", "source", "source_present")):
        if name not in rows[0]:
            continue
        arrays = [row[name] for row in rows]
        inputs[called] = _padded(arrays, pad_id, length)
        lengths_B1 = torch.tensor([[len(array)] for array in arrays])
        if int(lengths_B1.min()) < inputs[called].shape[1]:
            inputs[present] = torch.arange(inputs[called].shape[1]) < lengths_B1
    if "documents" in rows[0]:
        inputs["documents"] = _padded([row["documents"] for row in rows], 0, length)
    targets = [row["targets"] for row in rows]
    if targets[0].ndim == 0:
        return Batch(inputs, torch.from_numpy(np.stack(targets)))
    return Batch(inputs, _padded(targets, IGNORE, length))


def _padded(arrays: Sequence[np.ndarray[Any, Any]], value: int, length: int | None) -> Tensor:
    out = np.full((len(arrays), length or max(map(len, arrays))), value, np.int64)
    for i, array in enumerate(arrays):
        out[i, : len(array)] = array
    return torch.from_numpy(out)


@dataclass(frozen=True, kw_only=True)
class Needs:
    """What a model must have room for."""

    length: int
    """Tokens a row."""
    highest_id: int
    source_length: int | None = None


class RowBatches:
    """Batches of rows made of stored token ids."""

    def __init__(
        self,
        learnt: Rows,
        held: Rows,
        *,
        rows: int,
        seed: int,
        pad_id: int,
        needs: Needs,
        about: dict[str, Any],
        masker: Masker | None = None,
    ) -> None:
        """about: what `describe` gives."""
        if rows < 1:
            raise UsageError(f"a batch of {rows} rows is empty; give at least 1")
        self.rows, self.seed, self.pad_id, self.needs, self.masker = rows, seed, pad_id, needs, masker
        self._learnt, self._held, self._about = learnt, held, about
        self._epochs: dict[int, Epoch] = {}
        self.held_out_bytes: int | None = None
        """How many bytes of text the held-out targets stand for."""
        self.labels: tuple[str, ...] = ()
        """What each label is called."""
        self.n_rows = self._epoch(0).n
        """Rows an epoch."""
        if not self.n_rows:
            raise ClearheadError(
                f"there is not enough to learn from to fill one row of {needs.length:,} tokens; make rows shorter, or "
                "give more text"
            )

    def step(self, number: int) -> Batch:
        if number < 0:
            raise UsageError(f"there is no step {number}; steps are counted from 0")
        made = []
        for i in range(self.rows):
            epoch, at = divmod(number * self.rows + i, self.n_rows)
            made.append(self._masked(self._epoch(epoch).row(at), MASK, number, i))
        return collate(made, self.pad_id)

    def held_out(self) -> Iterator[Batch]:
        epoch = self._held.epoch(None)
        for first in range(0, epoch.n, self.rows):
            which = range(first, min(first + self.rows, epoch.n))
            yield collate([self._masked(epoch.row(i), HELD_OUT, i) for i in which], self.pad_id)

    def describe(self) -> dict[str, Any]:
        described: dict[str, Any] = json.loads(json.dumps({**self._about, "rows": self.rows, "seed": self.seed}))
        return described

    def check(self, config: TransformerConfig) -> None:
        """Refuse a model that has no room for these rows, or no vector for some of these ids.

        Raises:
            ClearheadError: naming which.
        """
        needs = self.needs
        if needs.highest_id >= config.vocab_size:
            raise ClearheadError(
                f"the data has the token {needs.highest_id}, and the model's vocabulary ends at "
                f"{config.vocab_size - 1}; use the tokenizer that came with the model"
            )
        room = min((n for n in (window(config), _places(config.stack)) if n is not None), default=needs.length)
        if needs.length > room:
            raise ClearheadError(f"rows have {needs.length} tokens, and the model reads {room}; make rows shorter")
        if needs.source_length is not None and config.encoder is not None:
            room = _places(config.encoder) or needs.source_length
            if needs.source_length > room:
                raise ClearheadError(
                    f"sources have up to {needs.source_length} tokens, and the model's encoder reads {room}; make them "
                    "shorter"
                )

    def _masked(self, row: Row, *key: int) -> Row:
        if self.masker is None:
            return row
        tokens, targets = self.masker(row["tokens"], generator(self.seed, *key))
        return {**row, "tokens": tokens, "targets": targets}

    def _epoch(self, number: int) -> Epoch:
        if number not in self._epochs:
            # A batch has rows of two epochs at most, or of many short ones.
            self._epochs = {n: epoch for n, epoch in self._epochs.items() if n == number - 1}
            self._epochs[number] = self._learnt.epoch(generator(self.seed, ORDER, number))
        return self._epochs[number]


def generator(seed: int, *key: int) -> np.random.Generator:
    """Random numbers for one purpose at one place: the same whatever was drawn before."""
    return np.random.default_rng([seed % 2**64, *key])


def _places(stack: StackConfig) -> int | None:
    """How many tokens a stack has positions for; None is no end."""
    match stack.embed.positions:
        case LearnedPositions(n=n, offset=offset, pad_id=pad_id):
            return n - offset if pad_id is None else n - pad_id - 1
        case SinusoidalPositions(n=n):
            return n
    return None


# ---- what is learnt, and from what


def next_token_batches(
    store: TokenStore,
    tokenizer: Tokenizer,
    *,
    rows: int,
    length: int,
    pack: Pack = "documents",
    held_out: Share = 0.05,
    seed: int = 0,
    marks: Marks | None = None,
) -> RowBatches:
    """Each token from those before it. A document begins with the tokenizer's begin mark (or else its end mark), which
    its first token is told from, and ends with the end mark, which is told too.

    held_out: the share of documents to measure on, or a pattern of the files that are.
    marks: others than the tokenizer's.
    """
    if marks is None:
        end = end_id(tokenizer)
        begin = tokenizer.bos_id if tokenizer.bos_id is not None else end
        marks = Marks(before_document=() if begin is None else (begin,), end=end)
    return _text_batches(store, tokenizer, marks, rows, length, pack, held_out, seed)


def masked_batches(
    store: TokenStore,
    tokenizer: Tokenizer,
    *,
    rows: int,
    length: int,
    pack: Pack = "documents",
    held_out: Share = 0.05,
    seed: int = 0,
    masking: MaskingConfig | None = None,
) -> RowBatches:
    """Hidden tokens from those around them. A row stands between the tokenizer's marks ([CLS] and [SEP]), and documents
    in one row are parted by the second. What is hidden is drawn anew in every step, from the seed, the step and the
    row.
    """
    masking = masking or MaskingConfig()
    before, after = marks_around(tokenizer)
    marks = Marks(before_row=before, after_row=after, after_document=() if pack == "rows" else after)
    return _text_batches(store, tokenizer, marks, rows, length, pack, held_out, seed, masking)


def _text_batches(
    store: TokenStore,
    tokenizer: Tokenizer,
    marks: Marks,
    rows: int,
    length: int,
    pack: Pack,
    held_out: Share,
    seed: int,
    masking: MaskingConfig | None = None,
) -> RowBatches:
    _check_length(length, len(marks.before_row) + len(marks.after_row))
    masker = None if masking is None else Masker(tokenizer, masking)

    def made(spans: Spans) -> Rows:
        text = Text(store, spans, marks)
        return Separate(text, length, rows) if pack == "rows" else Packed(text, length, apart=pack == "documents")

    learnt, held = split_documents(store, marks, held_out, seed)
    others = () if masker is None else (masker.mask_id, int(masker.ordinary.max()))
    batches = RowBatches(
        made(learnt),
        made(held),
        rows=rows,
        seed=seed,
        pad_id=tokenizer.pad_id or 0,
        needs=Needs(length=length, highest_id=max(store.highest_id, *marks.all, *others, 0)),
        about={
            "objective": "next token" if masking is None else "masked tokens",
            "hash": store.hash,
            "documents": store.n_records,
            "tokens": store.n_tokens,
            "length": length,
            "pack": pack,
            "held_out": held_out,
            "marks": asdict(marks),
            "masking": None if masking is None else asdict(masking),
        },
        masker=masker,
    )
    if masking is None:
        batches.held_out_bytes = _told_bytes(store, tokenizer, held, marks)
    return batches


def pair_batches(
    store: TokenStore,
    tokenizer: Tokenizer,
    *,
    rows: int,
    length: int,
    source_length: int | None = None,
    start: int | None = None,
    longer: Longer = "refuse",
    held_out: Share = 0.05,
    seed: int = 0,
) -> RowBatches:
    """The second column of each record from the first, for an encoder and a decoder. Rows of like length are read
    together.

    length: the most tokens that the decoder reads.
    source_length: the most that the encoder reads; None is as many.
    start: what the decoder begins with; None is the tokenizer's begin mark, or else its padding.
    longer: what is done with a pair that is longer.

    Raises:
        ClearheadError: the records are no pairs, one is too long, or the tokenizer has no end mark.
    """
    if store.n_columns != 2:
        raise ClearheadError(
            f"pairs have two columns, and these records have {store.n_columns}; name a source and a target"
        )
    end = end_id(tokenizer)
    start = next((i for i in (start, tokenizer.bos_id, tokenizer.pad_id) if i is not None), end)
    if end is None or start is None:
        raise ClearheadError(f"the tokenizer of {tokenizer.where} has no end mark, so a target would never end")
    before, after = marks_around(tokenizer)
    # A source stands between the marks that the tokenizer puts around any text, as it will when the model is used.
    source, target = Marks(before_row=before, after_row=after), Marks(before_document=(start,), end=end)
    lengths = (source_length or length, length)
    _check_length(lengths[0], len(source.all))
    _check_length(length, 1)
    n_marks = (len(source.all), 1)
    learnt, held = (
        Pairs(store, that_fit(store, part, n_marks, lengths, longer), source, target, lengths, rows)
        for part in split_records(store, held_out, seed)
    )
    return RowBatches(
        learnt,
        held,
        rows=rows,
        seed=seed,
        pad_id=tokenizer.pad_id or 0,
        needs=Needs(
            length=length, source_length=lengths[0], highest_id=max(store.highest_id, *source.all, *target.all)
        ),
        about={
            "objective": "source to target",
            "hash": store.hash,
            "pairs": store.n_records,
            "tokens": store.n_tokens,
            "lengths": list(lengths),
            "longer": longer,
            "held_out": held_out,
            "marks": [asdict(source), asdict(target)],
        },
    )


def label_batches(
    store: TokenStore,
    tokenizer: Tokenizer,
    *,
    rows: int,
    length: int,
    names: Sequence[str] | None = None,
    values: bool = False,
    longer: Longer = "cut",
    held_out: Share = 0.05,
    seed: int = 0,
) -> RowBatches:
    """What each text is, for a head of labels.

    names: of the labels, in the order of the head; None is all there are, in order.
    values: labels are numbers to come near to, not names.

    Raises:
        ClearheadError: a label that is not among the names, or is no number.
    """
    if store.n_columns != 1:
        raise ClearheadError(f"labels are of texts of one column, and these records have {store.n_columns}")
    before, after = marks_around(tokenizer)
    marks = Marks(before_row=before, after_row=after)
    _check_length(length, len(marks.all))
    names = None if values else tuple(names if names is not None else in_order(set(store.labels.tolist())))
    targets = _values(store) if names is None else _numbers(store, names)
    learnt, held = (
        Labelled(store, that_fit(store, part, (len(marks.all),), (length,), longer), targets, marks, length, rows)
        for part in split_records(store, held_out, seed)
    )
    batches = RowBatches(
        learnt,
        held,
        rows=rows,
        seed=seed,
        pad_id=tokenizer.pad_id or 0,
        needs=Needs(length=length, highest_id=max(store.highest_id, *marks.all, 0)),
        about={
            "objective": "values" if names is None else "labels",
            "hash": store.hash,
            "texts": store.n_records,
            "labels": None if names is None else list(names),
            "length": length,
            "longer": longer,
            "held_out": held_out,
            "marks": asdict(marks),
        },
    )
    batches.labels = names or ()
    return batches


def in_order(names: set[str]) -> list[str]:
    """Numbers by their size, other names by the alphabet."""
    return sorted(names, key=int) if all(name.lstrip("-").isdecimal() for name in names) else sorted(names)


def _numbers(store: TokenStore, names: Sequence[str]) -> np.ndarray[Any, Any]:
    number = {name: i for i, name in enumerate(names)}
    found = store.labels.tolist()
    odd = next((i for i, label in enumerate(found) if label not in number), None)
    if odd is not None:
        raise ClearheadError(
            f"{store.place(odd)} is labelled {found[odd]!r}, which is none of {', '.join(map(repr, list(names)[:10]))}"
        )
    return np.array([number[label] for label in found], np.int64)


def _values(store: TokenStore) -> np.ndarray[Any, Any]:
    numbers = np.empty(store.n_records, np.float32)
    for i, label in enumerate(store.labels.tolist()):
        try:
            numbers[i] = float(label)
        except ValueError:
            raise ClearheadError(f"{store.place(i)} is labelled {label!r}, which is no number") from None
    return numbers


def _check_length(length: int, n_marks: int) -> None:
    if length <= n_marks:
        raise UsageError(f"rows of {length} tokens have no room beside {n_marks} marks; make them longer")


def marks_around(tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What a tokenizer puts before a text, and behind it."""
    plain, whole = tokenizer.encode("a", bos=False), tokenizer.encode("a")
    at = next(i for i in range(len(whole)) if whole[i : i + len(plain)] == plain)
    return tuple(whole[:at]), tuple(whole[at + len(plain) :])


def end_id(tokenizer: Tokenizer) -> int | None:
    """The mark that ends a text."""
    name = tokenizer.vocabulary.names.get("eos_token")
    end = tokenizer.token_to_id(name) if name is not None else None
    return end if end is not None else next(iter(tokenizer.eos_ids), None)


def _told_bytes(store: TokenStore, tokenizer: Tokenizer, held: Spans, marks: Marks) -> int:
    """How many bytes of text are told in these parts of documents: all but what their first slots hold."""
    total = 0
    n_before = len(marks.before_document)
    sizes = store.lengths + n_before + len(marks.after_document)
    for document, start, stop in zip(*(part.tolist() for part in held), strict=True):
        if start == 0 and stop == sizes[document] and n_before:
            total += int(store.n_bytes[document])
        else:
            told = store.document(document, max(start + 1 - n_before, 0), stop - n_before)
            total += len(tokenizer.decode(told.tolist()).encode())
    return total
