"""Time and peak memory of the attention backends: 8 heads of 64, causal, float32, one row, lengths 512 to 16,384.

    python -m benchmarks.attention [--quick] [--json] [--force] [--lengths 512 2048]

Times are medians of runs in turn; memory is the peak above the inputs, each case in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.machine import matmul_flops, medians, peak_bytes, require_quiet, threads
from clearhead.ops.backends import BACKENDS
from clearhead.ops.masks import Causal, bind

N_HEADS, D_HEAD = 8, 64
LENGTHS = (512, 1024, 2048, 4096, 8192, 16384)
REFERENCE_UP_TO = 8192
MEGABYTE = 10**6
PASSES = ("forward", "forward and backward")


@dataclass(frozen=True)
class Measured:
    """One cell of the table."""

    backend: str
    length: int
    backward: bool
    seconds: float
    peak_megabytes: float
    share_of_matmul: float
    """Of the machine's measured rate of multiplication: the limit of the two (with backward, seven) products."""


class Case:
    """A backend at a length, ready to run. The inputs, and the gradient handed to the backward pass, are made here."""

    def __init__(self, backend: str, length: int, backward: bool) -> None:
        generator = torch.Generator().manual_seed(0)
        shape = (1, N_HEADS, length, D_HEAD)
        self.inputs = [torch.randn(shape, generator=generator).requires_grad_(backward) for _ in range(3)]
        self.upstream = torch.ones(shape) if backward else None
        self.function = BACKENDS[backend].function
        self.length = length

    def run(self) -> None:
        for tensor in self.inputs:
            tensor.grad = None
        q, k, v = self.inputs
        z = self.function(q, k, v, bind(Causal(), self.length, self.length), scale=D_HEAD**-0.5)
        if self.upstream is not None:
            z.backward(self.upstream)


def served(length: int, backward: bool) -> list[str]:
    """The backends that are measured at this length."""
    names = ["tiled", "sdpa"]
    if length <= REFERENCE_UP_TO:
        names.insert(0, "reference")
    return names if backward else [*names, "flex"]


def peak_in_new_process(backend: str, length: int, backward: bool) -> int:
    """The peak in bytes, from a fresh process, so that no other case has left memory behind."""
    command = [sys.executable, "-m", "benchmarks.attention", "--peak", backend, str(length), str(int(backward))]
    command += ["--threads", str(threads())]
    done = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=Path(__file__).resolve().parent.parent
    )
    return int(done.stdout.split()[-1])


def print_peak(backend: str, length: int, backward: bool) -> None:
    # The libraries' own buffers come with the first call. Only flex needs that call to be of the same length.
    Case(backend, length if backend == "flex" else 256, backward).run()
    case = Case(backend, length, backward)
    print(peak_bytes(case.run))


def measure(lengths: Sequence[int], repeats: int, peak_flops: float) -> list[Measured]:
    results = []
    for length in lengths:
        for backward in (False, True):
            cases = {name: Case(name, length, backward) for name in served(length, backward)}
            runs: dict[str, Callable[[], object]] = {name: case.run for name, case in cases.items()}
            seconds = medians(runs, repeats if length < REFERENCE_UP_TO else max(1, repeats - 2))
            del cases, runs
            # two products of length x length x 64 a head, half of each hidden; five more on the way back
            flops = 4 * N_HEADS * D_HEAD * length**2 / 2 * (3.5 if backward else 1)
            for name, taken in seconds.items():
                peak = peak_in_new_process(name, length, backward) / MEGABYTE
                results.append(Measured(name, length, backward, taken, peak, flops / taken / peak_flops))
    return results


def table(results: Sequence[Measured], backward: bool) -> Table:
    names = [name for name in BACKENDS if any(r.backend == name and r.backward == backward for r in results)]
    drawn = Table(title=PASSES[backward])
    drawn.add_column("length", justify="right")
    for name in names:
        drawn.add_column(f"{name}\nms", justify="right")
        drawn.add_column("MB", justify="right")
        drawn.add_column("of\nmatmul", justify="right")
    drawn.add_column("reference\n/ tiled", justify="right")
    for length in sorted({r.length for r in results}):
        found = {r.backend: r for r in results if r.length == length and r.backward == backward}
        cells = [f"{length:,}"]
        for name in names:
            r = found.get(name)
            if r is None:
                cells += ["-", "-", "-"]
            else:
                cells += [f"{r.seconds * 1e3:,.1f}", f"{r.peak_megabytes:,.0f}", f"{r.share_of_matmul:.0%}"]
        both = "reference" in found and "tiled" in found
        cells.append(f"{found['reference'].seconds / found['tiled'].seconds:.1f} x" if both else "-")
        drawn.add_row(*cells)
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="lengths 512 and 2,048, three repeats")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--force", action="store_true", help="measure although others use the processors")
    parser.add_argument("--lengths", type=int, nargs="+", help="other lengths")
    parser.add_argument("--threads", type=int, help="threads torch computes with (as many as it finds processors)")
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.peak:
        backend, length, backward = options.peak
        print_peak(backend, int(length), bool(int(backward)))
        return
    load = require_quiet(options.force)
    peak_flops = matmul_flops()
    lengths = options.lengths or ((512, 2048) if options.quick else LENGTHS)
    results = measure(lengths, repeats=3 if options.quick else 5, peak_flops=peak_flops)
    if options.json:
        facts = {"threads": threads(), "foreign_load": load, "matmul_gflops": peak_flops / 1e9}
        print(json.dumps({**facts, "results": [asdict(result) for result in results]}, indent=1))
        return
    console = Console(width=max(120, Console().width))
    console.print(
        f"{N_HEADS} heads of {D_HEAD}, causal, float32, {threads()} threads, others use {load:.0%}; "
        f"matmul {peak_flops / 1e9:.0f} GFLOP/s; MB: peak above the inputs"
    )
    for backward in (False, True):
        console.print(table(results, backward))


if __name__ == "__main__":
    main()
