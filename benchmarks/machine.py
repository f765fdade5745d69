"""What every benchmark asks of the machine: is it quiet, how many threads, medians of alternating runs, peak memory."""

from __future__ import annotations

import ctypes
import gc
import resource
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path


def foreign_load(seconds: float = 1.0) -> float:
    """The share of all processors that processes other than this one and its children use, over `seconds`."""
    from clearhead.costs import busy

    return busy.foreign_load(seconds) or 0.0


def require_quiet(force: bool = False) -> float:
    """The foreign load; ends the program when others use too much, unless forced."""
    from clearhead.costs.busy import QUIET

    load = foreign_load()
    if load > QUIET and not force:
        sys.exit(f"others use {load:.0%} of the processors, more than {QUIET:.0%}: wait for them, or add --force")
    return load


def threads() -> int:
    """The threads torch computes with."""
    import torch

    return torch.get_num_threads()


def seconds(run: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def medians(runs: Mapping[str, Callable[[], object]], repeats: int, warm_ups: int = 1) -> dict[str, float]:
    """The median seconds of each run. They take turns, so that a slow spell of the machine hits all alike."""
    for _ in range(warm_ups):
        for run in runs.values():
            run()
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            times[name].append(seconds(run))
    return {name: statistics.median(found) for name, found in times.items()}


def matmul_flops(size: int = 1024, repeats: int = 5) -> float:
    """Floating-point operations a second of a product of two square float32 matrices: what limits all else."""
    from clearhead.costs.machine import matmul_peak

    return matmul_peak(size=size, repeats=repeats)


def peak_bytes(run: Callable[[], object]) -> int:
    """How far the resident memory of this process rises above where it stood, at most, while `run` runs."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed but kept would be used again, unseen
    try:
        Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    except OSError:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        run()
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    before = _status("VmRSS")
    run()
    return max(0, _status("VmHWM") - before)


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {field}")
