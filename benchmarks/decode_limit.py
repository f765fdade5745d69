"""The limit of decoding: the best streaming read of as many bytes as a step reads, by the same threads."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks.machine import seconds
from clearhead.native import library

REPEATS = 3


class Memory:
    """Reads of so many bytes. A machine that others share may read twice as fast a minute later (44 and 80 GB/s were
    seen), so it is asked beside every run that is held to it.
    """

    def __init__(self, n_bytes: int) -> None:
        self._x = torch.randint(2**62, (max(1, n_bytes // 8),))
        self._sweeps: list[Callable[[], object]] = [self._x.sum]
        made = library(Path(__file__).with_suffix(".c"))
        if made is not None:
            made.read_all.argtypes = (ctypes.c_void_p, ctypes.c_long, ctypes.c_int)
            made.read_all.restype = ctypes.c_longlong
            threads = torch.get_num_threads()
            self._sweeps.append(lambda: made.read_all(self._x.data_ptr(), self._x.numel(), threads))

    def read(self) -> float:
        """Seconds of the best read now."""
        return min(seconds(sweep) for sweep in self._sweeps for _ in range(REPEATS))

    @property
    def n_bytes(self) -> int:
        return self._x.nbytes
