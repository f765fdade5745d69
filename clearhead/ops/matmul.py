"""The product of a stream with a matrix of weights, by the kernel that is fastest for the number of rows.

Decoding reads every weight for a handful of rows, and torch's `linear` is then not the best that torch has. Measured on
two cores without half-precision units (AVX2), in GB of weights a second, on the shapes of GPT-2 124M and Gemma 3 270M:

| rows | dtype | `linear` | here | how |
|---|---|---|---|---|
| 1 | float32 | 8 - 10 | 11 - 15 | the rows of W in parts, as a batch: the plain product uses one thread |
| 2 - 32 | float32 | 3 - 5 | 5 - 11 | W x^T |
| 1 | bfloat16 | 11 - 12 | 11 - 13 | `mv` |
| 8, 64 | bfloat16 | 0.9, 0.1 | 1.3, 0.7 (one thread) | W widened to float32 a slice at a time |

Where the processor multiplies half types itself (AVX-512, AMX), products of many rows are `linear`'s strength.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

Way = Callable[[Tensor, Tensor], Tensor]

PARTS = 4
"""Into so many parts the rows of W go: enough for a few threads, and few enough to cost nothing."""
FEW = {torch.float32: 32, torch.bfloat16: 8, torch.float16: 8}
"""Up to so many rows, W x^T is the faster way round."""
WIDEN_FROM = 6
"""From so many rows on, widening pays where the processor can't multiply a half type itself."""
SLICE = 2**20
"""Weights widened at a time: 4 MB, which stays in the cache."""


def linear(
    x: Float[Tensor, "*shape i"], weight_OI: Float[Tensor, "o i"], bias_O: Float[Tensor, "o"] | None = None
) -> Float[Tensor, "*shape o"]:
    """x @ W^T + b. Where a gradient is wanted, off the CPU, or compiled, torch's `linear`; all ways are held to it."""
    n_rows = x.numel() // x.shape[-1]
    wants_gradient = torch.is_grad_enabled() and (x.requires_grad or weight_OI.requires_grad)
    plain = wants_gradient or not weight_OI.is_cpu or torch.compiler.is_compiling()
    way = None if plain else _way(weight_OI.dtype, n_rows)
    if way is None:
        return F.linear(x, weight_OI, bias_O)
    y_NO = way(x.reshape(n_rows, -1), weight_OI)
    if bias_O is not None:
        y_NO += bias_O
    if y_NO.dtype != x.dtype:
        y_NO = y_NO.to(x.dtype)
    return y_NO.view(*x.shape[:-1], weight_OI.shape[0])


def _way(dtype: torch.dtype, n_rows: int) -> Way | None:
    """The product for so many rows; None stands for torch's `linear`."""
    if dtype not in FEW or n_rows == 0:
        return None
    if n_rows == 1:
        return _in_parts if dtype == torch.float32 else _one_row
    if dtype != torch.float32 and not multiplies(dtype):
        return _widened if n_rows >= WIDEN_FROM else None
    return _transposed if n_rows <= FEW[dtype] else None


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
