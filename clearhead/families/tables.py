"""Tensors that follow from a config and are in the files all the same."""

from __future__ import annotations

import torch
from torch import Tensor


def sinusoid_table(n: int, width: int) -> Tensor:
    """All sines and then all cosines of `n` positions, worked out in float64 and rounded once, as the files have it."""
    frequency = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angle = torch.arange(n, dtype=torch.float64)[:, None] * frequency
    return torch.cat([angle.sin(), angle.cos()], dim=1).float()


def inverse_frequencies(base: float, width: int) -> Tensor:
    """Radians a position for each pair of a head's dimensions (Su 2021, eq. 15)."""
    return 1.0 / base ** (torch.arange(0, width, 2).float() / width)
