"""The one table of tolerances, and the one way to measure an error."""

from __future__ import annotations

import torch
from torch import Tensor

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 4e-2, torch.float16: 5e-3}
"""The largest `error` that counts as equal, for tiny models whose outputs are of order one."""

REAL_TOLERANCE = 1e-4
"""For real models in float32, whose logits reach tens and whose sums are long."""


def error(a: Tensor, b: Tensor) -> float:
    """max |a - b| / max(1, max |b|): absolute below one, relative above it. NaN or another shape counts as infinite."""
    if a.shape != b.shape:
        return float("inf")
    if a.numel() == 0:
        return 0.0
    a, b = a.detach().double(), b.detach().double()
    same = a == b  # so that infinity agrees with itself
    off = torch.where(same, torch.zeros_like(a), (a - b).abs()).max()
    size = b[b.isfinite()].abs().max() if b.isfinite().any() else torch.tensor(0.0)
    found = float(off) / max(1.0, float(size))
    return found if found == found else float("inf")


def close(a: Tensor, b: Tensor, dtype: torch.dtype | None = None) -> bool:
    """Whether the error is within the table's tolerance for `dtype` (that of `a` when not given)."""
    return error(a, b) <= TOLERANCE[dtype or a.dtype]
