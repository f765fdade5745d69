"""What the machine can do at most, measured; and what this library's products reach of it."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping

import torch
from torch import nn

from clearhead.config import TransformerConfig
from clearhead.costs.count import Counts
from clearhead.costs.devices import HERE, Device
from clearhead.costs.overhead import step_overhead
from clearhead.costs.stopwatch import seconds_of
from clearhead.costs.time import matrix_shapes
from clearhead.nn.packing import linear, packing

BEYOND_CACHE = 128 * 2**20
"""Bytes that no cache holds: matrices of this much together come from the memory each time."""
SWEPT = 512 * 2**20
"""Bytes of a sweep that shows the bandwidth."""
Shape = tuple[int, int]


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

    def product() -> None:
        (a @ b)[0, 0].item()  # on other devices it is not done before somebody looks

    return 2 * size**3 / min(seconds_of(product, repeats))


def read_bandwidth(n_bytes: int | None = None, repeats: int = 7) -> float:
    """Bytes a second that the processors read from memory, with the threads that torch has: the faster of two sweeps
    over more than any cache holds, by the median of each.
    """
    x = torch.ones((n_bytes or SWEPT) // 4)
    sweeps = (x.sum, lambda: torch.dot(x, x))
    return x.nbytes / min(statistics.median(seconds_of(sweep, repeats)) for sweep in sweeps)


def product_bandwidth(shapes: Mapping[Shape, int], dtype: torch.dtype, rows: int) -> float:
    """Bytes of weights a second that a model's layers go through with `rows` rows while it writes token after token, on
    matrices (out, in) of these shapes, each so many times: what is reached of the bandwidth.

    Of each shape there are as many as no cache holds, and they take turns; one that is larger than that is cut.
    """
    n_bytes = seconds = 0.0
    for (n_out, n_in), number in shapes.items():
        size = n_in * dtype.itemsize
        cut = min(n_out, max(1, BEYOND_CACHE // size))
        x_NI = torch.ones(rows, n_in, dtype=dtype)
        number_held = max(1, BEYOND_CACHE // (cut * size))
        matrices = [nn.Parameter(torch.ones(cut, n_in, dtype=dtype)) for _ in range(number_held)]

        def sweep(x_NI: torch.Tensor = x_NI, matrices: list[nn.Parameter] = matrices) -> None:
            for matrix in matrices:
                linear(x_NI, matrix)

        with packing(), torch.inference_mode():
            one = statistics.median(seconds_of(sweep, 5)) / (len(matrices) * cut)
        n_bytes += number * n_out * size
        seconds += number * n_out * one
    return n_bytes / seconds


def this_machine(dtype: str, counts: Counts, rows: int) -> Device:
    """This machine's processors, with the threads that torch has, measured in seconds: what they can do at most, and
    what a model that writes `rows` texts at once reaches of it.
    """
    kind: torch.dtype = getattr(torch, dtype)
    n_threads, config = torch.get_num_threads(), counts.config
    reached, overhead = None, 0.0
    if isinstance(config, TransformerConfig) and config.decoder is not None:
        reached = product_bandwidth(matrix_shapes(counts), kind, rows)
        overhead = step_overhead(config, kind, rows)
    peak = this_peak(kind)
    return Device(
        key=HERE,
        name=f"this machine, {n_threads} {'thread' if n_threads == 1 else 'threads'}",
        memory=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        bandwidth=read_bandwidth(),
        peaks={dtype: peak},
        source="measured just now",
        reached=reached,
        overhead=overhead,
    )


def this_peak(dtype: torch.dtype, repeats: int = 5) -> float:
    """Operations a second of products of many rows with the threads that torch has, at best: torch's own, or this
    library's, which may be another.
    """
    peak = matmul_peak(dtype, repeats=repeats)
    for size in (512, 1024):
        x, weight = torch.ones(size, size, dtype=dtype), torch.ones(size, size, dtype=dtype)
        with torch.no_grad():
            times = seconds_of(lambda x=x, weight=weight: linear(x, weight), repeats)  # type: ignore[misc]
        peak = max(peak, 2 * size**3 / min(times))
    return peak
