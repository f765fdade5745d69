"""Reading a .safetensors file: eight bytes that give the header's length, a JSON header, and the tensors' bytes.

The header is checked in full before anything is believed or allocated, by the format's own rules: the ranges of the
tensors must cover the rest of the file exactly, without holes or overlaps, and each must be as long as its shape says.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.checkpoints.mapped import DOWNLOAD_AGAIN, MappedFile
from clearhead.errors import ClearheadError

LARGEST_HEADER = 100_000_000
"""The format's own limit, in bytes."""

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
}


@dataclass(frozen=True)
class Entry:
    """One tensor: its dtype, its shape, and the bytes it takes up in the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


class SafetensorsFile:
    """A checked .safetensors file. Raises ClearheadError that names the file and what is wrong with it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.mapped = MappedFile(path)
        try:
            self.entries = _entries(self.mapped)
        except BaseException:
            self.mapped.close()
            raise

    def values(self, entry: Entry, begin: int, end: int) -> Tensor:
        """Elements [begin, end) of a tensor, as a view of the mapped file."""
        size = entry.dtype.itemsize
        raw = self.mapped.bytes_at(entry.begin + begin * size, entry.begin + end * size)
        if raw.data_ptr() % size:
            raw = raw.clone()  # old files don't align their tensors
        return raw.view(entry.dtype)

    def release(self, entry: Entry, begin: int, end: int) -> None:
        """Give back the pages of elements [begin, end)."""
        size = entry.dtype.itemsize
        self.mapped.release(entry.begin + begin * size, entry.begin + end * size)

    def close(self) -> None:
        """Unmap the file."""
        self.mapped.close()


def _entries(file: MappedFile) -> dict[str, Entry]:
    if file.size < 8:
        raise ClearheadError(
            f"{file.path} is cut short: {file.size} bytes, where a safetensors file starts with an 8-byte length. "
            f"{DOWNLOAD_AGAIN}"
        )
    length = int.from_bytes(file.data[:8], "little")
    start = 8 + length
    if length > LARGEST_HEADER:
        raise ClearheadError(
            f"{file.path} is not a safetensors file: its header would be {length} bytes long, where the format allows "
            f"{LARGEST_HEADER} and the file has {file.size}. {DOWNLOAD_AGAIN}"
        )
    if start > file.size:
        raise ClearheadError(
            f"{file.path} is cut short inside its header: expected at least {start} bytes, found {file.size}. "
            f"{DOWNLOAD_AGAIN}"
        )
    header = _header(file, file.data[8:start])
    entries = dict(_entry(file, name, value, start) for name, value in header.items() if name != "__metadata__")
    file.release(0, start)
    _check_cover(file, entries, start)
    return entries


def _header(file: MappedFile, text: bytes) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name stands in it twice")
        return found

    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
        if not isinstance(header, dict):
            raise ValueError("it is not a JSON object")
    except (ValueError, RecursionError) as problem:
        raise ClearheadError(
            f"{file.path} has a damaged safetensors header ({len(text)} bytes): {problem}. {DOWNLOAD_AGAIN}"
        ) from problem
    return header


def _entry(file: MappedFile, name: str, value: Any, start: int) -> tuple[str, Entry]:
    def refuse(what: str) -> ClearheadError:
        return ClearheadError(f"{file.path}: the header's entry for {name!r} {what}. {DOWNLOAD_AGAIN}")

    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise refuse("does not consist of dtype, shape and data_offsets")
    kind, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(kind, str) or kind not in DTYPES:
        raise ClearheadError(
            f"{file.path}: {name!r} has the dtype {kind!r}, which clearhead does not read (it reads "
            f"{', '.join(DTYPES)}). Convert the tensor to one of these."
        )
    if not _are_sizes(shape):
        raise refuse(f"has the shape {shape!r}")
    if not _are_sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise refuse(f"has the data_offsets {offsets!r}")
    dtype = DTYPES[kind]
    begin, end = offsets
    expected = prod(shape) * dtype.itemsize
    if end - begin != expected:
        raise refuse(f"needs {expected} bytes for {kind} {shape}, but its data_offsets span {end - begin}")
    return name, Entry(dtype, tuple(shape), start + begin, start + end)


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(size) is int and size >= 0 for size in value)


def _check_cover(file: MappedFile, entries: dict[str, Entry], start: int) -> None:
    """The tensors, in order of their place, must fill the file from the header's end to its last byte."""
    end, last = start, "the header"
    for name, entry in _in_order(entries):
        if entry.begin != end:
            what = "overlaps" if entry.begin < end else "leaves a hole after"
            raise ClearheadError(
                f"{file.path}: {name!r} {what} {last}: it begins at byte {entry.begin}, expected {end}. "
                f"{DOWNLOAD_AGAIN}"
            )
        end, last = entry.end, repr(name)
    if end != file.size:
        what = "is cut short" if file.size < end else "has bytes after its last tensor"
        raise ClearheadError(f"{file.path} {what}: expected {end} bytes, found {file.size}. {DOWNLOAD_AGAIN}")


def _in_order(entries: dict[str, Entry]) -> Iterator[tuple[str, Entry]]:
    yield from sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end))
