"""Weights laid out anew for as long as somebody writes a text: as the processor's own kernel reads them, and those that
read the same stream side by side, so that one product does for all of them.

A product with few rows is bound by how fast the weights come out of memory. In half types, and in float32 for more
than one row, they come out slowly from a matrix that lies in rows (the table in `clearhead/ops/matmul.py`). A copy laid
out in blocks takes as much memory as the weights, so it is made when it is first read, and let go of when the text
ends.

Where rows are the best way there is, weights that are read together become parts of one matrix, which costs no memory
and stays: the same parameters, at other places, so that one of them saved by itself brings the whole matrix along.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.ops import matmul, quantised

SHARE = 0.5
"""How much of the memory that is free a copy may take."""

T = TypeVar("T")
Content = tuple[tuple[int, int], ...]
"""Of each tensor where it lies, and how often it was written."""


class _Laid(NamedTuple):
    """Weights as they were laid out, and what they were then."""

    first: weakref.ref[Tensor]
    content: Content
    weight: Tensor
    bias_O: Tensor | None
    sizes: tuple[int, ...]


class _Packing:
    """How many texts are being written, and the copies that they share: of a weight or some, packed or side by side."""

    def __init__(self) -> None:
        self.open = 0
        self.lock = threading.Lock()
        self.copies: dict[tuple[int, int, bool], _Laid] = {}
        self.refused: set[tuple[int, int, bool]] = set()


_packing = _Packing()


class _Here(threading.local):
    """What this thread does: another's text shall not change a bit of what is worked out here."""

    depth = 0


_here = _Here()


@contextmanager
def packing() -> Iterator[None]:
    """While this is open, products of few rows with a weight read a packed copy of it, where that is faster, in this
    thread.

    A weight that is written to meanwhile is packed anew. Everything is let go of when the last one closes.
    """
    with _kept(), _reading():
        yield


def packed(steps: Iterator[T]) -> Iterator[T]:
    """`steps`, each worked out with packing open. Between two it is not, and any thread may ask for the next."""
    with _kept():
        while True:
            with _reading():
                try:
                    step = next(steps)
                except StopIteration:
                    return
            yield step


@contextmanager
def _kept() -> Iterator[None]:
    """Copies are kept for as long as somebody writes a text."""
    with _packing.lock:
        _packing.open += 1
    try:
        yield
    finally:
        with _packing.lock:
            _packing.open -= 1
            if _packing.open == 0:
                _packing.copies.clear()
                _packing.refused.clear()


@contextmanager
def _reading() -> Iterator[None]:
    _here.depth += 1
    try:
        yield
    finally:
        _here.depth -= 1


def is_open() -> bool:
    """Whether this thread writes a text."""
    return _here.depth > 0


def linear(
    x: Float[Tensor, "*shape i"], weight_OI: Float[Tensor, "o i"], bias_O: Float[Tensor, "o"] | None = None
) -> Float[Tensor, "*shape o"]:
    """x @ W^T + b."""
    if isinstance(weight_OI, quantised.QuantisedTensor):
        return quantised.product(x, weight_OI, bias_O)
    if _here.depth and not torch.compiler.is_compiling() and matmul.packs(x, weight_OI):
        laid = _find((weight_OI,), (bias_O,), packed=True)
        if laid is not None:
            return matmul.packed_linear(x, laid.weight, bias_O)
    return matmul.linear(x, weight_OI, bias_O)


def several(
    x: Float[Tensor, "*shape i"], weights: Sequence[Tensor], biases: Sequence[Tensor | None]
) -> tuple[Float[Tensor, "*shape _"], ...]:
    """x @ W^T + b for each of these, by one product where that is faster."""
    if all(isinstance(weight, quantised.QuantisedTensor) for weight in weights):
        return quantised.several(x, cast(Sequence[quantised.QuantisedTensor], weights), biases)
    if len(weights) > 1 and _here.depth and not torch.compiler.is_compiling() and matmul.is_few(x, weights[0]):
        packed = matmul.packs(x, weights[0])
        laid = _find(tuple(weights), tuple(biases), packed=packed)
        if laid is not None:
            product = matmul.packed_linear if packed else matmul.linear
            parts: tuple[Tensor, ...] = product(x, laid.weight, laid.bias_O).split_with_sizes(laid.sizes, dim=-1)
            return parts
    return tuple(linear(x, weight, bias) for weight, bias in zip(weights, biases, strict=True))


def _find(weights: tuple[Tensor, ...], biases: tuple[Tensor | None, ...], *, packed: bool) -> _Laid | None:
    """A model's weights as they are now, laid out if there is room; None for what is not a model's own."""
    key = (id(weights[0]), len(weights), packed)
    laid = _known(key, weights, biases)
    if laid is not None or key in _packing.refused:
        return laid
    with _packing.lock, torch.inference_mode(False), torch.no_grad():
        # Another thread may have been the first.
        laid = _known(key, weights, biases) or _lay(weights, biases, packed)
        if laid is None:
            _packing.refused.add(key)
        elif _packing.open:
            _packing.copies[key] = laid
    return laid


def _known(key: tuple[int, int, bool], weights: tuple[Tensor, ...], biases: tuple[Tensor | None, ...]) -> _Laid | None:
    """What was laid out before, if the weights are still what they were."""
    laid = _packing.copies.get(key)
    fits = laid is not None and laid.first() is weights[0] and laid.content == _content(weights, biases)
    return laid if fits else None


def _lay(weights: tuple[Tensor, ...], biases: tuple[Tensor | None, ...], packed: bool) -> _Laid | None:
    first, lone = weights[0], len(weights) == 1
    if not all(type(w) is nn.Parameter and not w.is_inference() and w.dtype == first.dtype for w in weights):
        return None
    if len({bias is None for bias in biases}) > 1:
        return None
    if not packed and any(w.is_shared() for w in weights):
        return None  # moved, they would no longer be shared with the other processes
    if (packed or not _side_by_side(weights)) and sum(w.nbytes for w in weights) > SHARE * _free():
        return None
    if packed:
        laid = matmul.pack(first.detach() if lone else torch.cat([w.detach() for w in weights]))
    else:
        laid = _as_one(weights)
    bias_O = None if lone or biases[0] is None else torch.cat([b.detach() for b in biases if b is not None])
    key = (id(first), len(weights), packed)
    gone = weakref.ref(first, lambda _: _packing.copies.pop(key, None))
    return _Laid(gone, _content(weights, biases), laid, bias_O, tuple(w.shape[0] for w in weights))


def _as_one(weights: tuple[Tensor, ...]) -> Tensor:
    """One matrix that these are parts of; the parameters move there if they are not."""
    if not _side_by_side(weights):
        whole_OI = torch.cat([w.detach() for w in weights])
        for weight, part_OI in zip(weights, whole_OI.split([w.shape[0] for w in weights]), strict=True):
            weight.data = part_OI
        return whole_OI
    n_out, n_in = sum(w.shape[0] for w in weights), weights[0].shape[1]
    return weights[0].detach().as_strided((n_out, n_in), (n_in, 1))


def _side_by_side(weights: tuple[Tensor, ...]) -> bool:
    """Whether each begins where the one before it ends, in one piece of memory."""
    storage = weights[0].untyped_storage().data_ptr()
    ends = [w.data_ptr() + w.nbytes for w in weights[:-1]]
    return all(w.is_contiguous() and w.untyped_storage().data_ptr() == storage for w in weights) and all(
        w.data_ptr() == end for w, end in zip(weights[1:], ends, strict=True)
    )


def _content(weights: tuple[Tensor, ...], biases: tuple[Tensor | None, ...]) -> Content:
    """What a copy is one of. That of a lone weight is without its bias."""
    if len(weights) == 1:
        return ((weights[0].data_ptr(), weights[0]._version),)
    return tuple([(0, 0) if t is None else (t.data_ptr(), t._version) for t in (*weights, *biases)])


def _free() -> float:
    """Bytes of memory that can still be had; where Linux does not tell, no end of them."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return float("inf")
    return next((float(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), float("inf"))
