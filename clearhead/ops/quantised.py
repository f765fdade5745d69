"""Weights that stay in blocks of few bits, and the product with them.

A `QuantisedTensor` has the shape and the dtype of the weight it stands for, and is turned into plain numbers by
whatever looks at it; only the product, the choice of rows and of experts go without that. Decoding reads every weight
for a row or two, so what counts is how many bytes they are.

`product` is the truth: dequantised, multiplied, summed in float32. For a few rows `quantised.c` multiplies the blocks
themselves, to the precision of float32. On two cores of an AMD EPYC with AVX-512, 131,072 x 1,024 weights:

| kind | bytes | 1 row | 4 rows | 8 rows |
|---|---|---|---|---|
| Q4_0, Q5_0, Q8_0 | 75, 92, 143 MB | 1.9, 2.3, 2.9 ms (39, 40, 49 GB/s) | 4.9, 5.8, 4.8 | 10.4, 11.8, 10.9 |
| Q4_K, Q5_K, Q6_K | 75, 92, 110 MB | 2.3, 3.0, 2.3 ms (33, 31, 47 GB/s) | 5.5, 5.9, 5.2 | 11.5, 13.0, 11.4 |
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, UInt8
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.native import library
from clearhead.ops.blocks import SIZES, unpack
from clearhead.ops.matmul import linear
from clearhead.ops.watched import is_watched

NATIVE = {"Q4_0": 2, "Q5_0": 6, "Q8_0": 8, "Q4_K": 12, "Q5_K": 13, "Q6_K": 14}
"""The kinds that are multiplied as they are, by GGML's numbers."""
PAIR = 64
"""A row of weights is multiplied by so many at a time."""
FEW = 24
"""Up to so many rows, multiplying blocks takes less time than unpacking them and multiplying plain numbers."""
SLICE = 2**22
"""Weights unpacked at a time where there are more rows: 16 MB of float32."""


class _Beside(NamedTuple):
    """Weights that one x is multiplied with, as C has them."""

    blocks: list[Tensor]
    matrices: Any
    n_in: int
    sizes: list[int]
    """Rows of each."""
    n_out: int


class QuantisedTensor(Tensor):
    """A weight (..., out, in) kept in blocks: `raw` (..., out, bytes a row) of the kind `kind`. Read only."""

    raw: Tensor
    kind: str
    known: _Beside | None = None
    """The last weights it was multiplied together with, itself the first."""

    @staticmethod
    def __new__(cls, raw: Tensor, kind: str, dtype: torch.dtype = torch.float32) -> QuantisedTensor:
        size = SIZES[kind]
        if raw.dtype != torch.uint8 or raw.shape[-1] % size.nbytes:
            raise ClearheadError(
                f"rows of {raw.shape[-1]} bytes are not whole blocks of {kind} ({size.nbytes} bytes each)"
            )
        shape = (*raw.shape[:-1], raw.shape[-1] // size.nbytes * size.block)
        made: QuantisedTensor = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=raw.device)
        return made

    def __init__(self, raw: UInt8[Tensor, "*rows c"], kind: str, dtype: torch.dtype = torch.float32) -> None:
        """`dtype` is that of the numbers it stands for."""
        self.raw, self.kind = raw, kind
        self.is_native = kind in NATIVE and raw.is_contiguous() and raw.is_cpu

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """Bytes it takes up: those of its blocks."""
        return self.raw.nbytes

    def dequantise(self) -> Tensor:
        """The plain weight."""
        return _numbers(self.raw, self.kind, self.dtype)

    def __tensor_flatten__(self) -> tuple[list[str], Any]:
        return ["raw"], (self.kind, self.dtype)

    @staticmethod
    def __tensor_unflatten__(inner: dict[str, Tensor], how: Any, size: Any, stride: Any) -> QuantisedTensor:
        return QuantisedTensor(inner["raw"], *how)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        return _restored(self.raw.clone(), self.kind, self.dtype, isinstance(self, torch.nn.Parameter))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _restored, (self.raw, self.kind, self.dtype, isinstance(self, torch.nn.Parameter))

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"QuantisedTensor({self.kind}, {list(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if (own := EARLY.get(func)) is not None:
            return own(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        kwargs = kwargs or {}
        own = OWN.get(func)
        answer = own(*args, **kwargs) if own is not None else NotImplemented
        if answer is not NotImplemented:
            return answer
        if func._schema.is_mutable and isinstance(args[0], QuantisedTensor):
            raise ClearheadError(
                f"these weights are kept quantised ({args[0].kind}) and can't be changed; "
                "load the model without weights="
            )
        return func(*plain(args), **{name: plain(x) for name, x in kwargs.items()})


def _restored(raw: Tensor, kind: str, dtype: torch.dtype, is_parameter: bool) -> Tensor:
    made = QuantisedTensor(raw, kind, dtype)
    return torch.nn.Parameter(made, requires_grad=False) if is_parameter else made


def plain(x: Any) -> Any:
    """A quantised weight as plain numbers; anything else as it is, lists and tuples item by item."""
    if isinstance(x, QuantisedTensor):
        return x.dequantise()
    return type(x)(map(plain, x)) if isinstance(x, list | tuple) else x


def _like(w: QuantisedTensor, raw: Tensor, dtype: torch.dtype | None = None) -> QuantisedTensor:
    return QuantisedTensor(raw, w.kind, dtype or w.dtype)


def _rows(w: QuantisedTensor, dim: int, index: Tensor) -> Any:
    dim %= w.ndim
    return _like(w, w.raw.index_select(dim, index)) if dim < w.ndim - 1 else NotImplemented


def _slice(w: QuantisedTensor, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    dim %= w.ndim
    inside = dim < w.ndim - 1
    return _like(w, torch.ops.aten.slice.Tensor(w.raw, dim, start, end, step)) if inside else NotImplemented


def _select(w: QuantisedTensor, dim: int, index: int) -> Any:
    dim %= w.ndim
    return _like(w, w.raw.select(dim, index)) if dim < w.ndim - 1 else NotImplemented


def _embedding(ids: Tensor, weight: QuantisedTensor, *_: Any, **__: Any) -> Tensor:
    return _numbers(F.embedding(ids, weight.raw), weight.kind, weight.dtype)


def _itself(w: QuantisedTensor) -> QuantisedTensor:
    return _like(w, w.raw)


def _to(w: QuantisedTensor, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Any:
    return _like(w, w.raw.to(device), dtype)


OWN: dict[Any, Callable[..., Any]] = {
    torch.ops.aten.detach.default: _itself,
    torch.ops.aten.alias.default: _itself,
    torch.ops.aten.clone.default: lambda w, **_: _like(w, w.raw.clone()),
    torch.ops.aten.index_select.default: _rows,
    torch.ops.aten.slice.Tensor: _slice,
    torch.ops.aten.select.int: _select,
    torch.ops.aten._to_copy.default: _to,
}
"""What is done without unpacking all of it; NotImplemented stands for what isn't after all."""


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    input, bias = plain(input), plain(bias)
    return product(input, weight, bias) if isinstance(weight, QuantisedTensor) else F.linear(input, weight, bias)


def _requires_grad(w: QuantisedTensor, requires_grad: bool = True) -> QuantisedTensor:
    if requires_grad:
        raise ClearheadError(
            f"weights that are kept quantised ({w.kind}) can't be trained; load the model without weights="
        )
    return w


def _set_data(w: QuantisedTensor, data: Tensor) -> None:
    raise ClearheadError(
        f"these weights are kept quantised ({w.kind}) and can't be changed; load the model without weights="
    )


EARLY: dict[Any, Callable[..., Any]] = {
    F.linear: _linear,
    F.embedding: _embedding,
    Tensor.detach: _itself,
    Tensor.requires_grad_: _requires_grad,
    Tensor.requires_grad.__set__: _requires_grad,  # type: ignore[attr-defined]
    Tensor.data.__set__: _set_data,  # type: ignore[attr-defined]
}
"""The same, of what every step or every load does: caught before torch's dispatcher, which at its first subclass
imports all of torch.distributed (1.6 s).
"""


def product(
    x: Float[Tensor, "*shape i"], weight_OI: QuantisedTensor, bias_O: Float[Tensor, "o"] | None = None
) -> Float[Tensor, "*shape o"]:
    """x @ W^T + b, summed in float32 and rounded once to the dtype of x."""
    return several(x, [weight_OI], [bias_O])[0]


def several(
    x: Float[Tensor, "*shape i"], weights: Sequence[QuantisedTensor], biases: Sequence[Tensor | None]
) -> tuple[Tensor, ...]:
    """The products of one x with several weights, in one go over the processor's threads."""
    beside = _beside(weights)
    if beside is not None and _may_be_native(x, beside.n_in):
        y = _native(x, beside)
        ys = y.split_with_sizes(beside.sizes, dim=-1) if len(weights) > 1 else (y,)
        ys = tuple([y if b is None else y + b for y, b in zip(ys, biases, strict=True)])
        return ys if x.dtype == torch.float32 else tuple([y.to(x.dtype) for y in ys])
    return tuple(_unpacked(x, w, b) for w, b in zip(weights, biases, strict=True))


def _may_be_native(x: Tensor, n_in: int) -> bool:
    few = x.shape[-1] == n_in and 0 < x.numel() <= FEW * n_in
    followed = (x.requires_grad and torch.is_grad_enabled()) or is_watched()
    return few and x.is_cpu and not followed and _kernels() is not None


def _unpacked(x: Tensor, weight_OI: QuantisedTensor, bias_O: Tensor | None) -> Tensor:
    """Unpacked a slice at a time, so that no plain copy of a large matrix is made."""
    n_out, n_in = weight_OI.shape
    step = max(1, SLICE // n_in)
    if n_out <= step or (torch.is_grad_enabled() and x.requires_grad):
        return _plain_product(x, weight_OI.dequantise(), bias_O)
    y = x.new_empty(*x.shape[:-1], n_out)
    for start in range(0, n_out, step):
        rows = slice(start, start + step)
        bias = None if bias_O is None else bias_O[rows]
        y[..., rows] = _plain_product(x, _like(weight_OI, weight_OI.raw[rows]).dequantise(), bias)
    return y


def _plain_product(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    return linear(x, weight_OI.to(x.dtype), bias_O)


class _Matrix(ctypes.Structure):
    """As in quantised.c."""

    _fields_ = (("weights", ctypes.c_void_p), ("n_out", ctypes.c_int64), ("kind", ctypes.c_int64))


@cache
def _kernels() -> ctypes.CDLL | None:
    made = library(Path(__file__).with_name("quantised.c"))
    if made is not None:
        pointer, integer, long = ctypes.c_void_p, ctypes.c_int, ctypes.c_int64
        made.products.argtypes = (pointer, integer, pointer, long, long, pointer, integer)
        made.dequantise.argtypes = (integer, pointer, long, pointer, integer, integer)
    return made


def _native(x: Tensor, beside: _Beside) -> Tensor:
    """x W^T for each W, beside each other, in float32."""
    kernels = _kernels()
    assert kernels is not None
    if x.dtype != torch.float32 or not x.is_contiguous():
        x = x.float().contiguous()
    y = x.new_empty((*x.shape[:-1], beside.n_out))
    n_rows, n_weights, threads = x.numel() // beside.n_in, len(beside.sizes), torch.get_num_threads()
    if kernels.products(beside.matrices, n_weights, x.data_ptr(), n_rows, beside.n_in, y.data_ptr(), threads):
        raise MemoryError(f"no memory for {n_rows} rows of {beside.n_in}")
    return y


def _beside(weights: Sequence[QuantisedTensor]) -> _Beside | None:
    """The weights as C wants them, made once and kept with the first; None where C can't have them."""
    known = weights[0].known
    if known is not None and len(known.blocks) == len(weights):
        for weight, blocks in zip(weights, known.blocks, strict=True):
            if weight.raw is not blocks:
                break
        else:
            return known
    n_in, sizes = weights[0].shape[-1], [w.raw.shape[0] for w in weights]
    if n_in % PAIR or not all(w.is_native and w.raw.ndim == 2 and w.shape[-1] == n_in for w in weights):
        return None
    rows = [_Matrix(w.raw.data_ptr(), n, NATIVE[w.kind]) for w, n in zip(weights, sizes, strict=True)]
    made = _Beside([w.raw for w in weights], (_Matrix * len(rows))(*rows), n_in, sizes, sum(sizes))
    weights[0].known = made
    return made


def _numbers(raw: Tensor, kind: str, dtype: torch.dtype) -> Tensor:
    """Blocks (..., bytes a row) as plain numbers (..., weights a row): by C where there is one, else by torch."""
    size, kernels = SIZES[kind], _kernels() if kind in NATIVE and raw.is_cpu and not is_watched() else None
    shape = (*raw.shape[:-1], raw.shape[-1] // size.nbytes * size.block)
    if kernels is None:
        return unpack(raw.reshape(-1, raw.shape[-1]), kind).view(shape).to(dtype)
    narrow = dtype == torch.bfloat16
    raw, out = raw.contiguous(), torch.empty(shape, dtype=dtype if narrow else torch.float32)
    n_blocks, threads = raw.numel() // size.nbytes, torch.get_num_threads()
    kernels.dequantise(NATIVE[kind], raw.data_ptr(), n_blocks, out.data_ptr(), narrow, threads)
    return out.to(dtype)
