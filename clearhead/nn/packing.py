"""Weights laid out as the processor's own kernel reads them, for as long as somebody writes a text.

A product with few rows is bound by how fast the weights come out of memory, and in half types they come out slowly
from a matrix that lies in rows (the table in `clearhead/ops/matmul.py`). A copy laid out in blocks takes as much memory
as the weights, so it is made when it is first read, and let go of when the text ends.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.weak import WeakTensorKeyDictionary

from clearhead.ops import matmul

SHARE = 0.5
"""How much of the memory that is free a copy may take."""


@dataclass(frozen=True)
class _Copy:
    """A packed weight, and the content that it is a copy of: where it lies, and how often it was written."""

    of: tuple[int, int]
    packed: Tensor


class _Packing:
    """How many texts are being written, and the copies that they share."""

    def __init__(self) -> None:
        self.open = 0
        self.lock = threading.Lock()
        self.copies = WeakTensorKeyDictionary()


_packing = _Packing()


@contextmanager
def packing() -> Iterator[None]:
    """While this is open, products of few rows with a weight read a packed copy of it, where that is faster.

    A weight that is written to meanwhile is packed anew. Everything is let go of when the last one closes.
    """
    with _packing.lock:
        _packing.open += 1
    try:
        yield
    finally:
        with _packing.lock:
            _packing.open -= 1
            if _packing.open == 0:
                _packing.copies.clear()


def linear(
    x: Float[Tensor, "*shape i"], weight_OI: Float[Tensor, "o i"], bias_O: Float[Tensor, "o"] | None = None
) -> Float[Tensor, "*shape o"]:
    """x @ W^T + b."""
    if _packing.open and not torch.compiler.is_compiling() and matmul.packs(x, weight_OI):
        packed = _find(weight_OI)
        if packed is not None:
            return matmul.packed_linear(x, packed, bias_O)
    return matmul.linear(x, weight_OI, bias_O)


def _find(weight_OI: Tensor) -> Tensor | None:
    """The packed copy of a model's weight as it is now, made if there is room; None for what is not a model's own."""
    if not isinstance(weight_OI, nn.Parameter) or weight_OI.is_inference():
        return None
    content = (weight_OI.data_ptr(), weight_OI._version)
    copy: _Copy | None = _packing.copies.get(weight_OI)
    if copy is None or copy.of != content:
        if weight_OI.nbytes > SHARE * _free():
            return None
        copy = _Copy(content, matmul.pack(weight_OI.detach()))
        _packing.copies[weight_OI] = copy
    return copy.packed


def _free() -> float:
    """Bytes of memory that can still be had; where Linux does not tell, no end of them."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return float("inf")
    return next((float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), float("inf"))
