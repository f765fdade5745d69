"""Reading a GGUF file's header: metadata, and where each tensor lies.

Own code because the `gguf` package's reader takes 10 s on a vocabulary of 262k tokens; this takes a fraction of one.
Layout (ggml's docs/gguf.md, versions 2 and 3, little endian): "GGUF", version, counts of tensors and of metadata, the
metadata as (key, type, value), the tensors as (name, dims, type, offset), padding, and the tensors' data.
Every count and length is held against the bytes that are left before anything is made of it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from clearhead.checkpoints.gguf_quants import TYPES, GGMLType
from clearhead.checkpoints.mapped import DOWNLOAD_AGAIN, MappedFile
from clearhead.errors import ClearheadError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32
MOST_DIMS = 4
DEEPEST_ARRAY = 4

NUMBERS = {0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", 10: "<u8", 11: "<i8", 12: "<f8"}
BOOL, STRING, ARRAY = 7, 8, 9

U32, U64 = struct.Struct("<I"), struct.Struct("<Q")


@dataclass(frozen=True)
class GGUFEntry:
    """One tensor: its type, its shape in torch's order (rows last but one), and its bytes in the file."""

    type: GGMLType
    shape: tuple[int, ...]
    begin: int
    end: int


@dataclass(frozen=True)
class GGUFHeader:
    """What stands before the data."""

    version: int
    metadata: dict[str, Any]
    entries: dict[str, GGUFEntry]


def read_header(file: MappedFile) -> GGUFHeader:
    """Parse and check a header. Raises ClearheadError naming the file; allocates no more than the header holds."""
    reader = _Reader(file)
    magic = file.data[:4]
    if magic != MAGIC:
        raise ClearheadError(f"{file.path} is not a GGUF file: it starts with {magic!r}. {DOWNLOAD_AGAIN}")
    reader.at = 4
    version = reader.number(U32, "version")
    if version not in VERSIONS:
        what = "is big endian" if version in (v << 24 for v in VERSIONS) else f"is GGUF version {version}"
        raise ClearheadError(f"{file.path} {what}; clearhead reads little-endian GGUF 2 and 3. Convert it again.")
    n_tensors = reader.count("tensors", 24)
    n_metadata = reader.count("metadata entries", 13)
    metadata: dict[str, Any] = {}
    for index in range(n_metadata):
        key = reader.text(f"key {index} of the metadata")
        if key in metadata:
            raise reader.refuse(f"the metadata {key!r} stands in it twice")
        metadata[key] = reader.value(reader.number(U32, key), key)
    rough = [reader.tensor(index) for index in range(n_tensors)]
    entries = _place(reader, rough, _alignment(reader, metadata))
    file.release(0, reader.at)
    return GGUFHeader(version, metadata, entries)


class _Reader:
    """A position in a file, and what can be read from there."""

    def __init__(self, file: MappedFile) -> None:
        self.file = file
        self.data = file.data
        self.at = 0

    def refuse(self, what: str) -> ClearheadError:
        return ClearheadError(f"{self.file.path}: {what}. {DOWNLOAD_AGAIN}")

    def need(self, count: int, what: str) -> None:
        """Refuse to go beyond the end of the file."""
        if count > self.file.size - self.at:
            raise self.refuse(
                f"the GGUF is cut short, or damaged: {what} needs {count} bytes at byte {self.at}, so at least "
                f"{self.at + count} in all, but the file has {self.file.size}"
            )

    def number(self, kind: struct.Struct, what: str) -> int:
        self.need(kind.size, what)
        value: int = kind.unpack_from(self.data, self.at)[0]
        self.at += kind.size
        return value

    def count(self, what: str, least: int) -> int:
        """How many of something follow, each of at least `least` bytes."""
        n = self.number(U64, f"the number of {what}")
        self.need(n * least, f"a list of {n} {what}")
        return n

    def text(self, what: str) -> str:
        length = self.number(U64, what)
        self.need(length, what)
        begin, self.at = self.at, self.at + length
        return self._decode(self.data[begin : self.at], what)

    def _decode(self, raw: bytes, what: str) -> str:
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as problem:
            raise self.refuse(f"{what} is not valid UTF-8: {raw[:32]!r}") from problem

    def value(self, kind: int, what: str, depth: int = 0) -> Any:
        """A metadata value: a number, a bool, a string, or a list of them."""
        if kind == STRING:
            return self.text(what)
        if kind == ARRAY:
            return self.array(what, depth + 1)
        return self.numbers(kind, 1, what)[0]

    def array(self, what: str, depth: int) -> list[Any]:
        kind = self.number(U32, what)
        n = self.number(U64, what)
        if kind == STRING:
            return self.texts(n, what)
        if kind != ARRAY:
            return self.numbers(kind, n, what)
        if depth >= DEEPEST_ARRAY:
            raise self.refuse(f"{what} is a list of lists, more than {DEEPEST_ARRAY} deep")
        self.need(n * 12, f"{what}, a list of {n} lists,")
        return [self.array(what, depth + 1) for _ in range(n)]

    def numbers(self, kind: int, n: int, what: str) -> list[Any]:
        if kind != BOOL and kind not in NUMBERS:
            raise self.refuse(f"{what} has the unknown type {kind}")
        dtype = np.dtype(NUMBERS.get(kind, "<u1"))
        self.need(n * dtype.itemsize, what)
        values = np.frombuffer(self.data, dtype=dtype, count=n, offset=self.at)
        self.at += n * dtype.itemsize
        found: list[Any] = (values != 0 if kind == BOOL else values).tolist()
        return found

    def texts(self, n: int, what: str) -> list[str]:
        """A list of strings. A vocabulary holds hundreds of thousands, so the loop is bare."""
        self.need(n * 8, f"{what}, a list of {n} strings,")
        data, size, at, unpack = self.data, self.file.size, self.at, U64.unpack_from
        raw: list[bytes] = []
        add = raw.append
        for _ in range(n):
            if at + 8 > size:
                self.at = at
                self.need(8, what)
            begin = at + 8
            at = begin + unpack(data, at)[0]
            if at > size:
                self.at = begin
                self.need(at - begin, what)
            add(data[begin:at])
        self.at = at
        try:
            return [str(item, "utf-8") for item in raw]
        except UnicodeDecodeError:
            return [self._decode(item, what) for item in raw]  # raises, naming the string

    def tensor(self, index: int) -> tuple[str, GGMLType, tuple[int, ...], int]:
        """One tensor's name, type, shape in torch's order, and offset from the start of the data."""
        name = self.text(f"the name of tensor {index}")
        n_dims = self.number(U32, name)
        if n_dims > MOST_DIMS:
            raise self.refuse(f"{name!r} has {n_dims} dimensions, at most {MOST_DIMS} are possible")
        shape = tuple(self.number(U64, name) for _ in range(n_dims))[::-1]
        kind = self.number(U32, name)
        offset = self.number(U64, name)
        if kind not in TYPES:
            raise ClearheadError(
                f"{self.file.path}: {name!r} has the GGUF type {kind}, which clearhead can't read. "
                "Take another quantisation of the model, such as Q8_0."
            )
        return name, TYPES[kind], shape, offset


def _alignment(reader: _Reader, metadata: dict[str, Any]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if type(alignment) is not int or alignment <= 0 or alignment % 8:
        raise reader.refuse(f"general.alignment is {alignment!r}, expected a multiple of 8")
    return alignment


def _place(
    reader: _Reader, rough: list[tuple[str, GGMLType, tuple[int, ...], int]], alignment: int
) -> dict[str, GGUFEntry]:
    """Turn offsets into byte ranges, and hold them against the file and each other."""
    start = -(-reader.at // alignment) * alignment
    entries: dict[str, GGUFEntry] = {}
    for name, kind, shape, offset in rough:
        if name in entries:
            raise reader.refuse(f"the tensor {name!r} stands in it twice")
        columns = shape[-1] if shape else 1
        if columns % kind.block:
            raise reader.refuse(f"{name!r} has rows of {columns}, not a multiple of {kind.name}'s block {kind.block}")
        if offset % alignment:
            raise reader.refuse(f"{name!r} begins at {offset}, not a multiple of the alignment {alignment}")
        begin = start + offset
        entries[name] = GGUFEntry(kind, shape, begin, begin + prod(shape) // kind.block * kind.nbytes)
    end, last = start, "the header"
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin < end:
            raise reader.refuse(f"{name!r} overlaps {last}: it begins at byte {entry.begin}, expected {end} or later")
        end, last = entry.end, repr(name)
    if entries and end > reader.file.size:
        raise reader.refuse(f"the GGUF is cut short: expected {end} bytes, found {reader.file.size}")
    return entries
