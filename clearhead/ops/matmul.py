"""The product of a stream with a matrix of weights, by the kernel that is fastest for the number of rows.

Decoding reads every weight for a handful of rows, training and prefill multiply thousands, and torch's `linear` is the
best that torch has for neither. In float32 it calls MKL, and oneDNN was faster wherever it was measured: on two cores
of an AMD EPYC with AVX-512, on the shapes of GPT-2 124M and Gemma 3 270M, and by less with AVX2 alone.

| rows | dtype | `linear` | here | how |
|---|---|---|---|---|
| 1 | float32 | 11 - 16 GB/s of weights | 18 - 36 | the rows of W in parts, as a batch: `linear` uses one thread |
| 2 - 4 | float32 | 4 - 10 | 10 - 26 | W x^T |
| 8, 64 | float32 | 5 - 10, 2 - 4 | 13 - 18, 4 - 6 | oneDNN |
| 2 - 32 | float32, while a text is written | 11 | 37 - 40 (2 - 8), 21 (32) | oneDNN on a packed copy |
| 1,024, 4,096 | float32 | 143 - 198 GFLOP/s | 190 - 224 | oneDNN; backwards to x 150 - 199, here 182 - 217 |
| 1 - 8 | bfloat16, with units for it | 9 - 18 GB/s | 17 - 31 | oneDNN on a packed copy: `clearhead/nn/packing.py` |
| 1 | bfloat16, without | 11 - 12 | 11 - 13 | `mv` |
| 8, 64 | bfloat16, without | 0.9, 0.1 | 1.3, 0.7 (one thread) | W widened to float32 a slice at a time |
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from clearhead.ops.matmul_traced import product as traced_product

Way = Callable[[Tensor, Tensor], Tensor]

PARTS = 4
"""Into so many parts the rows of W go: enough for a few threads, and few enough to cost nothing."""
FEW = 4
"""Up to so many rows, W x^T is the faster way round in float32."""
WIDEN_FROM = 6
"""From so many rows on, widening pays where the processor can't multiply a half type itself."""
SLICE = 2**20
"""Weights widened at a time: 4 MB, which stays in the cache."""
PACK_TO = 32
"""Up to so many rows, a packed copy of the weights is read faster than the weights."""
PACK_FOR = 8
"""The number of rows that a packed copy is laid out for: in float32 8 rows go at 37 GB/s, and at 26 where it is 1."""
PACK_FROM = 2**14
"""Numbers in a matrix below which it makes no difference how they lie."""


def linear(
    x: Float[Tensor, "*shape i"], weight_OI: Float[Tensor, "o i"], bias_O: Float[Tensor, "o"] | None = None
) -> Float[Tensor, "*shape o"]:
    """x @ W^T + b. Off the CPU, under autocast, in torch's transforms of functions, or compiled, torch's own `linear`;
    all ways are held to it.
    """
    n_rows = x.numel() // x.shape[-1]
    if n_rows == 0 or not _ours(x, weight_OI):
        if _is_compiled(x, weight_OI) and n_rows > FEW:
            y_NO: Tensor = traced_product(x.reshape(n_rows, -1), weight_OI, bias_O)
            return y_NO.view(*x.shape[:-1], weight_OI.shape[0])
        return F.linear(x, weight_OI, bias_O)
    x_NI = x.reshape(n_rows, -1)
    wants_gradient = torch.is_grad_enabled() and (x.requires_grad or weight_OI.requires_grad)
    if weight_OI.dtype == torch.float32 and n_rows > FEW and has_onednn():
        # torch's `apply` has no types.
        product: Callable[..., Tensor] = _Product.apply if wants_gradient else _onednn
        y_NO = product(x_NI, weight_OI, bias_O)
        return y_NO.view(*x.shape[:-1], weight_OI.shape[0])
    way = None if wants_gradient else _way(weight_OI.dtype, n_rows)
    if way is None:
        # In two dimensions the bias joins the sum before it is rounded, however x lies in memory.
        return F.linear(x_NI, weight_OI, bias_O).view(*x.shape[:-1], weight_OI.shape[0])
    y_NO = way(x_NI, weight_OI)
    if bias_O is not None:
        y_NO += bias_O
    return y_NO.to(x.dtype).view(*x.shape[:-1], weight_OI.shape[0])


def is_few(x: Tensor, weight_OI: Tensor) -> bool:
    """Whether this is a product of few rows, without a gradient, for which there is a choice of ways."""
    return 0 < x.numel() <= PACK_TO * x.shape[-1] and not torch.is_grad_enabled() and _ours(x, weight_OI)


def packs(x: Tensor, weight_OI: Tensor) -> bool:
    """Whether a packed copy of W would make this product faster."""
    if weight_OI.numel() < PACK_FROM or not has_onednn() or not is_few(x, weight_OI):
        return False
    if weight_OI.dtype == torch.float32:
        return x.numel() > x.shape[-1]
    return weight_OI.dtype in (torch.bfloat16, torch.float16) and multiplies(weight_OI.dtype)


def pack(weight_OI: Tensor) -> Tensor:
    """A copy of W in the order in which oneDNN's kernel reads it; of no use but for `packed_linear`."""
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight_OI, PACK_FOR)
    return packed


def packed_linear(x: Tensor, packed: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """x @ W^T + b with a packed W."""
    return _onednn(x, packed, bias_O)


def _ours(x: Tensor, weight_OI: Tensor) -> bool:
    """Whether there is a choice of ways: plain tensors of the CPU, and nobody who traces, transforms or casts."""
    return (
        weight_OI.is_cpu
        and type(x) is Tensor
        and type(weight_OI) in (Tensor, torch.nn.Parameter)
        and x.dtype == weight_OI.dtype
        and not torch.compiler.is_compiling()
        and not torch.is_autocast_enabled("cpu")
        and not bool(torch._C._are_functorch_transforms_active())
    )


def _is_compiled(x: Tensor, weight_OI: Tensor) -> bool:
    """Whether this is traced for compiled code that gains by oneDNN: training in float32 on the CPU."""
    return (
        torch.compiler.is_compiling()
        and torch.is_grad_enabled()
        and weight_OI.is_cpu
        and x.dtype == weight_OI.dtype == torch.float32
        and not torch.is_autocast_enabled("cpu")
        and _HAS_ONEDNN
    )


def transposed_product(y_NO: Tensor, x_NI: Tensor) -> Tensor:
    """y^T x, the gradient of a matrix of weights: in float32 by oneDNN, 290 - 430 GFLOP/s where MKL has 200 - 220."""
    if y_NO.dtype == torch.float32 and _ours(y_NO, x_NI) and has_onednn():
        return _onednn(y_NO.T, x_NI.T, None)
    return y_NO.T @ x_NI


def _way(dtype: torch.dtype, n_rows: int) -> Way | None:
    """The product for few rows, or of a half type; None stands for torch's `linear`."""
    if dtype == torch.float32:
        return _in_parts if n_rows == 1 else _transposed if n_rows <= FEW else None
    if dtype not in (torch.bfloat16, torch.float16) or multiplies(dtype):
        return None
    if n_rows == 1:
        return _one_row
    return _widened if n_rows >= WIDEN_FROM else None


def _onednn(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    y: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight_OI, bias_O, "none", [], "")
    return y


class _Product(torch.autograd.Function):
    """x @ W^T + b with its gradients, which are such products themselves."""

    @staticmethod
    def forward(ctx: Any, x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        ctx.save_for_backward(x_NI, weight_OI)
        return _onednn(x_NI, weight_OI, bias_O)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x_NI, weight_OI = ctx.saved_tensors
        y_NO = gradients[0].contiguous()
        of_x, of_weight, of_bias = ctx.needs_input_grad
        return (
            linear(y_NO, weight_OI.T) if of_x else None,
            transposed_product(y_NO, x_NI) if of_weight else None,
            y_NO.sum(0) if of_bias else None,
        )


def _one_row(x_1I: Tensor, weight_OI: Tensor) -> Tensor:
    return torch.mv(weight_OI, x_1I[0])[None]


def _in_parts(x_1I: Tensor, weight_OI: Tensor) -> Tensor:
    """The parts side by side, one a thread, and the rows that are over."""
    n_out, n_in = weight_OI.shape
    even = n_out - n_out % PARTS
    if torch.get_num_threads() == 1 or even == 0 or not weight_OI.is_contiguous():
        return _one_row(x_1I, weight_OI)
    y_1O = x_1I.new_empty(1, n_out)
    parts_POI = weight_OI[:even].view(PARTS, -1, n_in)
    torch.bmm(parts_POI, x_1I.T.expand(PARTS, n_in, 1), out=y_1O[0, :even].view(PARTS, -1, 1))
    if even < n_out:
        torch.mv(weight_OI[even:], x_1I[0], out=y_1O[0, even:])
    return y_1O


def _transposed(x_NI: Tensor, weight_OI: Tensor) -> Tensor:
    return (weight_OI @ x_NI.T).T.contiguous()


def _widened(x_NI: Tensor, weight_OI: Tensor) -> Tensor:
    """The product in float32, a slice of the weights at a time; it is rounded once, at the end."""
    n_rows, (n_out, n_in) = x_NI.shape[0], weight_OI.shape
    step = max(1, SLICE // n_in)
    # The kernel for 16 columns is faster than that for 8, and much faster than those for odd numbers.
    x_IN = F.pad(x_NI, (0, 0, 0, -n_rows % 16)).float().T
    wide_SI = x_IN.new_empty(min(step, n_out), n_in)
    y_NO = x_IN.new_empty(n_rows, n_out)
    for start in range(0, n_out, step):
        part_SI = weight_OI[start : start + step]
        y_SN = wide_SI[: part_SI.shape[0]].copy_(part_SI) @ x_IN
        y_NO[:, start : start + step] = y_SN[:, :n_rows].T
    return y_NO


@cache
def multiplies(dtype: torch.dtype) -> bool:
    """Whether this processor has instructions for products of a half type (torch asks oneDNN the same)."""
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())


@cache
def has_onednn() -> bool:
    """Whether torch was built with oneDNN, and with this entrance to it."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


_HAS_ONEDNN = has_onednn()  # compiled code can't ask
if _HAS_ONEDNN:

    @register_flop_formula(torch.ops.mkldnn._linear_pointwise)
    def _flops(x: tuple[int, ...], weight: tuple[int, ...], *rest: Any, out_shape: tuple[int, ...], **more: Any) -> int:
        """A multiplication and an addition for each weight and row: torch's counter does not know this product."""
        return 2 * int(torch.Size(out_shape).numel()) * x[-1]
