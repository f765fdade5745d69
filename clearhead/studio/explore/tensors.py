"""Parts of what a run computed, as the browser asks for them: some layers, heads, rows and columns, pooled, coded."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.errors import UsageError
from clearhead.studio.explore.coding import Code, Kind, as_bytes, decode, encode, pooled
from clearhead.taps import resolve

if TYPE_CHECKING:
    from clearhead.studio.explore.runs import Run, Runs

MAX_ANSWER = 64 << 20
"""Bytes of one answer."""
PART = re.compile(r"(?P<one>\d{1,7})|(?P<first>\d{0,7})[:-](?P<last>\d{0,7})")


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What part of a value is wanted. Parts are numbers and ranges: "3", "0-5" (both ends), "0:6" (the last not)."""

    layers: str = ""
    heads: str = ""
    rows: str = ""
    cols: str = ""
    most: bool = False
    """Of the heads, the largest at each cell, as one."""
    pool: int = 1
    """The largest cell of each square of so many cells, in the last two axes."""
    code: Code = "f32"


@dataclass(frozen=True)
class Piece:
    """An answer: bytes, little-endian and in C order, and what they are."""

    data: bytes
    shape: tuple[int, ...]
    kind: Kind
    code: Code
    addresses: tuple[str, ...]


def piece(runs: Runs, run: Run, name: str, wanted: Wanted, cancelled: Event | None = None) -> Piece:
    """Part of what stands at an address, or, with stars, at several of one shape, stacked: (L, H, T, S).

    Raises:
        UsageError: a part that is not there, or more than one answer holds.
        ClearheadError: the model has no such address.
    """
    if not 1 <= wanted.pool <= 4096:
        raise UsageError(f"pool is {wanted.pool}; it is a number of cells from 1 to 4,096")
    model = runs.models.get(run.model)
    addresses = resolve(model, [name])
    if "*" in name:
        addresses = [addresses[i] for i in chosen(wanted.layers, len(addresses), "layers")]
    elif wanted.layers:
        raise UsageError(f"{name} is one place; layers are chosen where its name has a star")
    if len(addresses) > 1:
        runs.record(run.id, addresses, cancelled)
    parts: list[Tensor] = []
    for address in addresses:
        value, places = selected(runs, run, address, wanted, cancelled)
        shape = shape_of(value, places, wanted)
        if parts and tuple(parts[0].shape) != shape:
            raise UsageError(
                f"what {name} names has several shapes, {parts[0].shape} and {shape}; ask for one at a time"
            )
        # Before anything is copied.
        _check_size(math.prod(shape) * len(addresses), wanted)
        parts.append(part_of(value, places, wanted))
    values = torch.stack(parts) if "*" in name else parts[0]
    data, kind = as_bytes(values, wanted.code)
    return Piece(data, tuple(values.shape), kind, wanted.code, tuple(addresses))


def _check_size(n: int, wanted: Wanted) -> None:
    if n * 4 > MAX_ANSWER * (4 if wanted.code == "u8sqrt" else 1):
        raise UsageError(f"that is {n:,} numbers, more than one answer holds; ask for fewer rows, or pool them")


def selected(
    runs: Runs, run: Run, address: str, wanted: Wanted, cancelled: Event | None
) -> tuple[Tensor, dict[int, list[int]]]:
    """What stands at one address, without the batch axis, and which places of its axes are wanted, by axis."""
    letters = runs.letters(run, address)
    is_pattern = address.endswith(".pattern")
    if wanted.code == "u8sqrt" and not is_pattern:
        raise UsageError("u8sqrt is a code of shares, from 0 to 1: patterns alone have it; take f32 or f16")
    coded = is_pattern and wanted.code == "u8sqrt"
    value = (runs.shares if coded else runs.exact)(run.id, address, cancelled)[0]
    heads = next((i for i, letter in enumerate(letters) if letter in ("H", "G")), None)
    if heads is None and (wanted.heads or wanted.most):
        raise UsageError(f"{address} has no heads")
    places: dict[int, list[int]] = {}
    if heads is not None and (wanted.heads or wanted.most):
        places[heads] = chosen(wanted.heads, value.shape[heads], "heads")
    # Rows and columns are the last two axes, whatever they count.
    for axis, text, what in ((value.ndim - 2, wanted.rows, "rows"), (value.ndim - 1, wanted.cols, "columns")):
        if text:
            if axis < 0 or axis in places:
                raise UsageError(f"{address} has no {what} to choose")
            places[axis] = chosen(text, value.shape[axis], what)
    if wanted.pool > 1 and value.ndim < 2:
        raise UsageError(f"{address} is no map that could be pooled")
    return value, places


def shape_of(value: Tensor, places: dict[int, list[int]], wanted: Wanted) -> tuple[int, ...]:
    """The shape that `part_of` gives."""
    shape = [len(places.get(axis, range(n))) for axis, n in enumerate(value.shape)]
    if wanted.most:
        shape[_heads(places)] = 1
    if wanted.pool > 1:
        shape[-2:] = [-(-n // wanted.pool) for n in shape[-2:]]
    return tuple(shape)


def part_of(value: Tensor, places: dict[int, list[int]], wanted: Wanted) -> Tensor:
    """The wanted places of a value: bytes where shares are wanted as bytes, else float32."""
    for axis, numbers in places.items():
        first, n = numbers[0], len(numbers)
        # A run of places is a view, and copies nothing.
        is_run = numbers == list(range(first, first + n))
        value = value.narrow(axis, first, n) if is_run else value.index_select(axis, torch.tensor(numbers))
    if wanted.most:
        value = value.amax(dim=_heads(places), keepdim=True)
    if wanted.pool > 1:
        value = pooled(value, wanted.pool)
    if wanted.code == "u8sqrt":
        return value if value.dtype == torch.uint8 else encode(value)
    return decode(value) if value.dtype == torch.uint8 else value.float()


def _heads(places: dict[int, list[int]]) -> int:
    """The axis of the heads, which is the first of those that are chosen from."""
    return next(iter(places))


def chosen(text: str, n: int, what: str) -> list[int]:
    """The numbers that a choice names, of 0 to n - 1; all of them where it is empty.

    Raises:
        UsageError: it can't be read, or names one that is not there.
    """
    if not text:
        return list(range(n))
    if len(text) > 2000:
        raise UsageError(f"the choice of {what} is too long")
    found: list[int] = []
    for word in text.split(","):
        match = PART.fullmatch(word.strip())
        if match is None:
            raise UsageError(f"{what}={text!r:.60} is not understood; write numbers and ranges, as 0,3 or 0:4")
        if match["one"] is not None:
            first = last = int(match["one"])
        else:
            first = int(match["first"] or 0)
            last = int(match["last"] or n) - (0 if match["last"] and "-" in word else 1)
        if not 0 <= first <= last < n:
            raise UsageError(f"{what} are 0 to {n - 1}, and {word.strip()!r} was asked for")
        found += range(first, last + 1)
        if len(found) > n:
            break
    if len(set(found)) < len(found):
        raise UsageError(f"the choice of {what} names the same ones over again")
    return found
