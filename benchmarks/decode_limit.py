"""The limit of decoding: the best streaming read of as many bytes as a step reads, by the same threads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.machine import seconds
from clearhead.native import library

REPEATS = 8


class Memory:
    """Reads of so many bytes, tried again whenever it is asked: the best of all tries counts."""

    def __init__(self, n_bytes: int) -> None:
        x = torch.ones(max(1, n_bytes // 8), dtype=torch.int64)
        floats = x.view(torch.float32)
        self._sweeps: list[Callable[[], object]] = [floats.sum, lambda: torch.dot(floats, floats)]
        made = library(Path(__file__).with_suffix(".c"))
        if made is not None:
            made.read_all.argtypes = (ctypes.c_void_p, ctypes.c_long, ctypes.c_int)
            made.read_all.restype = ctypes.c_longlong
            threads = torch.get_num_threads()
            self._sweeps.append(lambda: made.read_all(x.data_ptr(), x.numel(), threads))
        self._x = x
        self.best = float("inf")
        """Seconds of the best read so far."""

    def read(self) -> None:
        """Try again."""
        self.best = min(self.best, *(seconds(sweep) for sweep in self._sweeps for _ in range(REPEATS)))

    @property
    def bandwidth(self) -> float:
        """Bytes a second."""
        return self._x.nbytes / self.best
