"""What `clearhead cost --device here` expects of writing, beside what `generate` does, on Gemma 3 270M.

    python -m benchmarks.cost [--json] [--force] [--threads N] [--rows N]

The machine is measured anew for each dtype, by the products of this library on matrices of the model's shapes; then the
model is loaded in a process of its own, and 64 greedy tokens are written behind a prompt of 64. The bound is what the
bandwidth alone would allow.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.decode import DTYPES, N_PROMPT
from benchmarks.decode import worker as start_worker
from benchmarks.machine import require_quiet

MODEL = "gemma3-270m"
N_NEW, REPEATS = 64, 3
WITHIN = 0.35
"""How far from what is measured what is expected may be."""


@dataclass(frozen=True)
class Row:
    """Tokens a second of one dtype."""

    dtype: str
    rows: int
    measured: float
    expected: float
    bound: float

    @property
    def off(self) -> float:
        return self.expected / self.measured - 1


def measure(dtype: str, n_rows: int, n_threads: int) -> Row:
    """What is expected, and what is."""
    import torch

    from clearhead.checkpoints.shipped import shipped_file
    from clearhead.costs.cost import cost

    torch.set_num_threads(n_threads)
    context = N_PROMPT + N_NEW // 2  # in the middle of what is written
    service = cost(MODEL, context=context, batch=n_rows, dtype=dtype, device="here").service
    assert service is not None
    step = service.writing(n_rows)
    worker = start_worker("clearhead", str(shipped_file(MODEL)), dtype, n_threads)
    rows = [[1000 + (97 * row + 31 * i) % 20000 for i in range(N_PROMPT)] for row in range(n_rows)]
    worker.ask(rows=rows[:1], n_new=4)
    seconds = [worker.ask(rows=rows, n_new=N_NEW)["steps_seconds"] for _ in range(REPEATS)]
    worker.close()
    measured = n_rows * (N_NEW - 1) / statistics.median(seconds)
    return Row(dtype, n_rows, measured, step.tokens_per_second, n_rows / step.bound.seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--force", action="store_true", help="measure although others use the processors")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads (one a processor)")
    parser.add_argument("--rows", type=int, default=1, help="texts at once")
    options = parser.parse_args()
    load = require_quiet(options.force)
    found = [measure(dtype, options.rows, options.threads) for dtype in DTYPES]
    if options.json:
        told = [{**asdict(row), "off": row.off} for row in found]
        print(json.dumps({"threads": options.threads, "foreign_load": load, "writing": told}, indent=1))
        return
    table = Table(title=f"{MODEL}, {options.threads} threads, tokens a second (expected within {WITHIN:.0%})")
    for name in ("dtype", "rows", "measured", "expected", "off", "bound"):
        table.add_column(name, justify="left" if name == "dtype" else "right")
    for row in found:
        rates = (f"{rate:.1f}" for rate in (row.measured, row.expected))
        table.add_row(row.dtype, str(row.rows), *rates, f"{row.off:+.0%}", f"{row.bound:.1f}")
    Console().print(table)


if __name__ == "__main__":
    main()
