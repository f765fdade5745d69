"""What the machine can do at most, measured."""

from __future__ import annotations

import time

import torch

ENOUGH = 0.5
"""Seconds after which no more is tried."""


def matmul_peak(
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
    *,
    size: int | None = None,
    repeats: int = 5,
) -> float:
    """Floating-point operations a second of the product of two square matrices, at best, with the threads that torch
    has: what limits all else. Draws none of torch's own random numbers.
    """
    device = torch.device(device)
    if size is None:
        size = 1024 if device.type == "cpu" else 8192
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(size, size, generator=generator).to(device, dtype) for _ in range(2))
    best, began = float("inf"), time.perf_counter()
    for turn in range(repeats + 1):
        start = time.perf_counter()
        product = a @ b
        product[0, 0].item()  # on other devices it is not done before somebody looks
        seconds = time.perf_counter() - start
        best = min(best, seconds) if turn else best  # the first one warms up
        if turn and time.perf_counter() - began > ENOUGH:
            break
    return 2 * size**3 / best
