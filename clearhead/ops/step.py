"""Norms, rotations and one query's attention for a token or a few, in C: there launching kernels is all that they cost.

`norms.py`, `positions.py` and `attention.py` have the plain forms, which are the truth and serve where no compiler is.
Two cores of an AMD EPYC with AVX-512, microseconds here and by torch: a norm of 640 numbers 2.3, 5.0; a rotation of 4
heads 2.9, 4.5; and one query of each head against so many keys of so many numbers:

| rows, heads, groups, keys, width | float32 | bfloat16 |
|---|---|---|
| 1, 4, 1, 100, 256 | 11, 14 | 13, 11 |
| 1, 4, 1, 512, 256 | 20, 48 | 23, 31 |
| 1, 12, 12, 128, 64 | 17, 11 | 22, 39 |
| 1, 12, 12, 512, 64 | 31, 32 | 40, 120 |
| 8, 12, 12, 512, 64 | 292, 341 | 300, 932 |
| 1, 32, 8, 512, 128 | 65, 52 | 85, 58 |
"""

from __future__ import annotations

import ctypes
from functools import cache
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from clearhead.native import library
from clearhead.ops.watched import is_watched

WIDE = 256
"""From so wide heads on, one query's attention is faster here in float32."""

POINTER, LONG, INT, DOUBLE = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_double


class Kernels:
    """The functions of step.c for one dtype. Each answers None where the memory does not lie as it reads it."""

    def __init__(self, made: ctypes.CDLL, dtype: str) -> None:
        self._rms_norm = made[f"rms_norm_{dtype}"]
        self._rms_norm.argtypes = (POINTER, POINTER, POINTER, LONG, LONG, DOUBLE, INT, INT)
        self._rms_norm.restype = None
        self._rotate = made[f"rotate_{dtype}"]
        self._rotate.argtypes = (POINTER, POINTER, POINTER, POINTER, LONG, LONG, LONG, LONG, LONG, INT)
        self._rotate.restype = None
        self._attend = made[f"attend_{dtype}"]
        self._attend.argtypes = (POINTER,) * 4 + (LONG,) * 7 + (DOUBLE, INT)

    def rms_norm(
        self, x: Float[Tensor, "*shape d"], scale: Float[Tensor, "_"], eps: float, round_first: bool
    ) -> Float[Tensor, "*shape d"] | None:
        """As `norms.rms_norm`. The first d numbers of `scale` are the weight."""
        if not x.is_contiguous() or scale.dtype != torch.float32:
            return None
        y, d = torch.empty_like(x), x.shape[-1]
        n_threads = torch.get_num_threads()
        self._rms_norm(x.data_ptr(), scale.data_ptr(), y.data_ptr(), x.numel() // d, d, eps, round_first, n_threads)
        return y

    def rotate(
        self,
        x_BH1K: Float[Tensor, "B H 1 K"],
        cos: Float[Tensor, "#B 1 1 R"],
        sin: Float[Tensor, "#B 1 1 R"],
        interleaved: bool,
    ) -> Float[Tensor, "B H 1 K"] | None:
        """As `positions.rotate`, for one token a row."""
        if cos.dtype != x_BH1K.dtype or not (cos.is_contiguous() and sin.is_contiguous()):
            return None
        x_BH1K = x_BH1K.contiguous()
        y_BH1K, (n_rows, n_heads, _, width), turned = torch.empty_like(x_BH1K), x_BH1K.shape, cos.shape[-1]
        tables, step = (cos.data_ptr(), sin.data_ptr()), turned if cos.shape[0] > 1 else 0
        self._rotate(x_BH1K.data_ptr(), *tables, y_BH1K.data_ptr(), n_rows, n_heads, width, turned, step, interleaved)
        return y_BH1K

    def attend(
        self,
        q_BH1K: Float[Tensor, "B H 1 K"],
        k_BGSK: Float[Tensor, "B G S K"],
        v_BGSK: Float[Tensor, "B G S V"],
        scale: float,
    ) -> Float[Tensor, "B H 1 V"] | None:
        """softmax(scale q k^T) v for one query a row, which sees all keys; values as wide as keys. None too where
        torch's kernel is the faster.
        """
        (n_rows, n_heads, _, width), (_, n_groups, n_keys, _) = q_BH1K.shape, k_BGSK.shape
        if width < WIDE if q_BH1K.dtype == torch.float32 else n_heads > n_groups:
            return None
        strides = k_BGSK.stride()
        if v_BGSK.stride() != strides or strides[2:] != (width, 1) or n_keys == 0:
            return None
        if v_BGSK.shape != k_BGSK.shape or not v_BGSK.dtype == k_BGSK.dtype == q_BH1K.dtype:
            return None
        q_BH1K = q_BH1K.contiguous()
        z_BH1K = torch.empty_like(q_BH1K)
        given = (q_BH1K.data_ptr(), k_BGSK.data_ptr(), v_BGSK.data_ptr(), z_BH1K.data_ptr())
        sizes = (n_rows, n_groups, n_heads // n_groups, n_keys, width, strides[0], strides[1])
        failed = self._attend(*given, *sizes, scale, torch.get_num_threads())
        return None if failed else z_BH1K


def kernels(x: Tensor) -> Kernels | None:
    """Those for numbers like these; None where there are none: another dtype or device, no compiler, or somebody who
    traces, transforms or wants a gradient.
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or type(x) is not Tensor or not x.is_cpu:
        return None
    return None if is_watched() else _library().get(x.dtype)


@cache
def _library() -> dict[torch.dtype, Kernels]:
    made = library(Path(__file__).with_name("step.c"))
    if made is None:
        return {}
    return {torch.float32: Kernels(made, "float32"), torch.bfloat16: Kernels(made, "bfloat16")}
