"""The product of a stream with a matrix of weights, by the kernel that is fastest for the number of rows.

Decoding reads every weight for a handful of rows, and there torch's `linear` is not always the best it has. Measured
on two cores without half-precision units (AVX2), in GB of weights a second: float32, 2 to 8 rows, `linear` 3 to 4 and
W x^T 7 to 13; bfloat16, 64 rows, `linear` 0.2 and widening the weights to float32 a slice at a time 1.2. With such
units (AVX-512, AMX) bfloat16 products of many rows are `linear`'s strength.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

FEW = 8
"""Up to so many rows, W x^T is the faster way round."""
WIDEN_FROM = 4
"""From so many rows on, widening pays where the processor can't multiply a half type itself."""
SLICE = 2**19
"""Weights widened at a time: 2 MB, which stays in the cache."""


def linear(
    x: Float[Tensor, "*shape i"], weight_OI: Float[Tensor, "o i"], bias_O: Float[Tensor, "o"] | None = None
) -> Float[Tensor, "*shape o"]:
    """x @ W^T + b. Where a gradient is wanted, or off the CPU, torch's `linear`; the other ways are held to it."""
    wants_gradient = torch.is_grad_enabled() and (x.requires_grad or weight_OI.requires_grad)
    n_rows = x.numel() // x.shape[-1]
    if wants_gradient or not weight_OI.is_cpu or n_rows == 0:
        return F.linear(x, weight_OI, bias_O)
    x_NI = x.reshape(n_rows, -1)
    if weight_OI.dtype == torch.float32 or _multiplies(weight_OI.dtype):
        if n_rows == 1 and weight_OI.dtype != torch.float32:
            y_NO = torch.mv(weight_OI, x_NI[0])[None] if bias_O is None else torch.addmv(bias_O, weight_OI, x_NI[0])
        elif 1 < n_rows <= FEW:
            y_NO = _transposed(x_NI, weight_OI, bias_O).T.contiguous()
        else:
            return F.linear(x, weight_OI, bias_O)
    elif n_rows >= WIDEN_FROM and weight_OI.dtype in (torch.bfloat16, torch.float16):
        y_NO = _widened(x_NI, weight_OI, bias_O)
    else:
        return F.linear(x, weight_OI, bias_O)
    return y_NO.view(*x.shape[:-1], -1)


def _transposed(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    """W x^T + b, (O, N)."""
    if bias_O is None:
        return weight_OI @ x_NI.T
    return torch.addmm(bias_O[:, None], weight_OI, x_NI.T)


def _widened(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    """The product in float32, a slice of the weights at a time, rounded once at the end."""
    n_out, n_in = weight_OI.shape
    step = max(1, SLICE // n_in)
    x_IN = x_NI.float().T
    y_NO = x_NI.new_empty(x_NI.shape[0], n_out)
    for start in range(0, n_out, step):
        stop = min(start + step, n_out)
        y_ON = weight_OI[start:stop].float() @ x_IN
        if bias_O is not None:
            y_ON += bias_O[start:stop, None]
        y_NO[:, start:stop] = y_ON.T
    return y_NO


@cache
def _multiplies(dtype: torch.dtype) -> bool:
    """Whether this processor has instructions for products of a half type (torch asks oneDNN the same)."""
    if dtype == torch.bfloat16:
        return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    if dtype == torch.float16:
        return bool(torch.ops.mkldnn._is_mkldnn_fp16_supported())
    return False
