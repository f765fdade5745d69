"""The text that small models in claims learn: the source of Python's standard library, which is on every machine."""

from __future__ import annotations

import os
import random
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

BYTES = 4_000_000
SYMBOLS = 128
"""Ids of the text: ASCII, with any other byte as a question mark."""


@cache
def python_source() -> tuple[Tensor, Tensor]:
    """Ids to learn from, about four million, and a twentieth of the files, held out. The files are shuffled once for
    all, by a fixed seed, so that neither part is one package's.
    """
    files = sorted(path for path in Path(os.__file__).parent.rglob("*.py") if "site-packages" not in path.parts)
    files = [path for path in files if "test" not in path.parts and "lib2to3" not in path.parts]
    random.Random(0).shuffle(files)
    learnt, held_out, total = bytearray(), bytearray(), 0
    for i, path in enumerate(files):
        text = path.read_bytes()
        (held_out if i % 20 == 0 else learnt).extend(text)
        total += len(text)
        if total >= BYTES:
            break
    return _ids(learnt), _ids(held_out)


def _ids(text: bytearray) -> Tensor:
    ids = torch.frombuffer(text, dtype=torch.uint8).long()
    return ids.where(ids < SYMBOLS, ord("?"))


def rows(ids: Tensor, n_rows: int, length: int, generator: torch.Generator) -> Tensor:
    """(n_rows, length) pieces of a text, from places drawn at random."""
    starts = torch.randint(len(ids) - length + 1, (n_rows, 1), generator=generator)
    return ids[starts + torch.arange(length)]
