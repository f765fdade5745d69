"""A GGUF file in bfloat16 from a quantised one: the same header, the quantised weights unpacked and rounded.

    python -m benchmarks.gguf_bfloat16 SOURCE.gguf TARGET.gguf

The metadata is copied byte by byte: the `gguf` package takes 10 s to read a vocabulary of 262k tokens.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import torch
from torch import Tensor

from clearhead.checkpoints.gguf_checkpoint import GGUFCheckpoint
from clearhead.checkpoints.gguf_header import DEFAULT_ALIGNMENT, read_header
from clearhead.checkpoints.mapped import MappedFile

F32, BF16 = 0, 30
"""GGML's numbers of the types."""
FILE_TYPE, UINT32, MOSTLY_BF16 = b"general.file_type", 4, 32


def write_bfloat16(source: Path, target: Path) -> None:
    """Write `target`."""
    checkpoint = GGUFCheckpoint(source)
    file = MappedFile(source)
    header = read_header(file)
    alignment = header.metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    entries = header.entries
    kinds = {name: F32 if entry.type.dtype == torch.float32 else BF16 for name, entry in entries.items()}
    infos, at = b"", 0
    for name, entry in entries.items():
        text = name.encode()
        sizes = entry.shape[::-1]
        infos += struct.pack(f"<Q{len(text)}sI{len(sizes)}QIQ", len(text), text, len(sizes), *sizes, kinds[name], at)
        at += _padded(_n_bytes(entry.shape, kinds[name]), alignment)
    start = _metadata(file, next(iter(entries))) + infos
    with target.open("wb") as out:
        out.write(start.ljust(_padded(len(start), alignment), b"\0"))
        for name in entries:
            x = checkpoint.read(name).to(torch.float32 if kinds[name] == F32 else torch.bfloat16)
            data = _bytes(x)
            out.write(data.ljust(_padded(len(data), alignment), b"\0"))
    checkpoint.close()
    file.close()


def _metadata(file: MappedFile, first: str) -> bytes:
    """What stands before the first tensor's name, with the type of the file changed."""
    end = file.data.find(struct.pack("<Q", len(first)) + first.encode())
    start = bytearray(file.data[:end])
    key = struct.pack("<Q", len(FILE_TYPE)) + FILE_TYPE + struct.pack("<I", UINT32)
    place = start.find(key)
    if place >= 0:
        struct.pack_into("<I", start, place + len(key), MOSTLY_BF16)
    return bytes(start)


def _n_bytes(shape: tuple[int, ...], kind: int) -> int:
    return torch.Size(shape).numel() * (4 if kind == F32 else 2)


def _bytes(x: Tensor) -> bytes:
    return x.contiguous().view(torch.uint8).numpy().tobytes()


def _padded(n: int, alignment: int) -> int:
    return (n + alignment - 1) // alignment * alignment


if __name__ == "__main__":
    write_bfloat16(Path(sys.argv[1]), Path(sys.argv[2]))
