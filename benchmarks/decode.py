"""Decoding, loading and memory beside the `transformers` package, in one run, taking turns.

    python -m benchmarks.decode [--quick] [--json] [--force] [--threads N]

Gemma 3 270M from its GGUF file and a random GPT-2 of 124M, in float32 and bfloat16: greedy tokens behind a prompt of
64, for 1 row and for 8, no token ending a text. Each side runs in processes of its own. Times are medians; tokens a
second count the steps after the first token, and the limit is how often the weights are read at the measured bandwidth.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.machine import require_quiet
from benchmarks.worker import Worker

LIBRARIES = ("clearhead", "transformers")
DTYPES = ("float32", "bfloat16")
N_PROMPT = 64
PATIENCE = 120
"""After so many seconds two repeats are enough."""
GEMMA, GPT2 = "Gemma 3 270M", "GPT-2 124M, random"
MEGABYTE = 10**6


@dataclass(frozen=True)
class Decoded:
    """One line of the table of speeds."""

    model: str
    dtype: str
    rows: int
    tokens_per_second: dict[str, float]
    prefill_seconds: dict[str, float]
    ratio: float
    """How many times faster clearhead's steps are."""
    share_of_limit: dict[str, float]
    """The weights' bytes a step, over what the measured bandwidth moves in the time of a step."""
    same_tokens: int
    """How many leading tokens of all rows are the same on both sides, at least."""


@dataclass(frozen=True)
class Loaded:
    """One line of the table of loading."""

    library: str
    dtype: str
    seconds: float
    peak_megabytes: float
    weight_megabytes: float
    import_seconds: float
    imported_megabytes: float


def worker(library: str, source: str, dtype: str, n_threads: int, *, tokenizer: bool = False) -> Worker:
    """One library with one model."""
    arguments = [library, source, dtype, str(n_threads), "1" if tokenizer else "0"]
    return Worker("benchmarks.decode_worker", arguments, n_threads)


def bandwidth(n_threads: int) -> float:
    """Bytes a second that this machine reads."""
    import torch

    from clearhead.costs.machine import read_bandwidth

    torch.set_num_threads(n_threads)
    return read_bandwidth()


def decode(model: str, dtype: str, sides: dict[str, Worker], plan: Plan) -> list[Decoded]:
    """The speeds of two workers, which take turns."""
    results = []
    for n_rows in (1, 8):
        # Rows of their own, from ids every vocabulary here has, and no special ones.
        rows = [[1000 + (97 * row + 31 * i) % 20000 for i in range(N_PROMPT)] for row in range(n_rows)]
        times: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        tokens: dict[str, list[list[int]]] = {}
        for side in sides.values():
            side.ask(rows=rows[:1], n_new=4)
        start = time.monotonic()
        for turn in range(plan.repeats):
            for name, side in sides.items():
                answer = side.ask(rows=rows, n_new=plan.n_new)
                times[name].append((answer["prefill_seconds"], answer["steps_seconds"]))
                tokens[name] = answer["tokens"]
            # In bfloat16 the peer may take minutes to read eight prompts.
            if turn >= 1 and time.monotonic() - start > PATIENCE:
                break
        steps = {name: statistics.median(t[1] for t in found) / (plan.n_new - 1) for name, found in times.items()}
        weights = {name: side.made["weight_bytes"] for name, side in sides.items()}
        results.append(
            Decoded(
                model=model,
                dtype=dtype,
                rows=n_rows,
                tokens_per_second={name: n_rows / step for name, step in steps.items()},
                prefill_seconds={name: statistics.median(t[0] for t in found) for name, found in times.items()},
                ratio=steps["transformers"] / steps["clearhead"],
                share_of_limit={name: weights[name] / plan.bandwidth / step for name, step in steps.items()},
                same_tokens=min(map(_common, tokens["clearhead"], tokens["transformers"])),
            )
        )
    return results


def _common(a: list[int], b: list[int]) -> int:
    """How many leading items are the same."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))


@dataclass(frozen=True)
class Plan:
    """How much is measured, and against what."""

    n_new: int
    repeats: int
    loads: int
    n_threads: int
    bandwidth: float


def loaded(library: str, dtype: str, found: list[dict[str, Any]]) -> Loaded:
    def median(key: str) -> float:
        return float(statistics.median(one[key] for one in found))

    return Loaded(
        library=library,
        dtype=dtype,
        seconds=median("load_seconds"),
        peak_megabytes=median("peak_bytes") / MEGABYTE,
        weight_megabytes=median("weight_bytes") / MEGABYTE,
        import_seconds=median("import_seconds"),
        imported_megabytes=median("imported_bytes") / MEGABYTE,
    )


def measure_gemma(plan: Plan, folder: Path) -> tuple[list[Decoded], list[Loaded]]:
    """Both sides read the same GGUF file, model and tokenizer."""
    from clearhead.checkpoints.shipped import shipped_file

    file = str(shipped_file("gemma3-270m"))
    speeds, loads = [], []
    for dtype in DTYPES:
        starts = []
        for last in [False] * (plan.loads - 1) + [True]:
            ours = worker("clearhead", file, dtype, plan.n_threads, tokenizer=True)
            starts.append(ours.made)
            if not last:
                ours.close()
        # The peer takes most of a minute to read a GGUF file, so it does that once, and then reads its own copy.
        theirs = worker(
            "transformers",
            file if dtype == DTYPES[0] else str(folder),
            dtype,
            plan.n_threads,
            tokenizer=dtype == DTYPES[0],
        )
        loads.append(loaded("clearhead", dtype, starts))
        if dtype == DTYPES[0]:
            loads.append(loaded("transformers", dtype, [theirs.made]))
            theirs.ask(save=str(folder))
        speeds += decode(GEMMA, dtype, {"clearhead": ours, "transformers": theirs}, plan)
        ours.close()
        theirs.close()
    return speeds, loads


def measure_gpt2(plan: Plan, folder: Path) -> list[Decoded]:
    """The peer makes random weights, and clearhead reads them from where it saved them."""
    speeds = []
    for dtype in DTYPES:
        theirs = worker("transformers", "gpt2-124m", dtype, plan.n_threads)
        theirs.ask(save=str(folder / dtype))
        ours = worker("clearhead", str(folder / dtype), dtype, plan.n_threads)
        speeds += decode(GPT2, dtype, {"clearhead": ours, "transformers": theirs}, plan)
        ours.close()
        theirs.close()
    return speeds


def speed_table(results: list[Decoded], plan: Plan) -> Table:
    drawn = Table(title=f"prompt {N_PROMPT}, {plan.n_new} new tokens, greedy")
    for name in ("model", "dtype", "rows"):
        drawn.add_column(name)
    for name in LIBRARIES:
        drawn.add_column(f"{name}\ntokens/s", justify="right")
        drawn.add_column("of limit", justify="right")
        drawn.add_column("prefill ms", justify="right")
    drawn.add_column("ratio", justify="right")
    drawn.add_column("same\ntokens", justify="right")
    for r in results:
        cells = [r.model, r.dtype, str(r.rows)]
        for name in LIBRARIES:
            cells.append(f"{r.tokens_per_second[name]:,.1f}")
            cells.append(f"{r.share_of_limit[name]:.0%}")
            cells.append(f"{r.prefill_seconds[name] * 1e3:,.0f}")
        drawn.add_row(*cells, f"{r.ratio:.2f} x", f"{r.same_tokens} of {plan.n_new}")
    return drawn


def load_table(results: list[Loaded]) -> Table:
    drawn = Table(title=f"loading {GEMMA} from its GGUF file, model and tokenizer, each in a new process")
    for name in ("library", "dtype"):
        drawn.add_column(name)
    for name in ("seconds", "peak MB", "weights MB", "after\nimports MB", "imports s"):
        drawn.add_column(name, justify="right")
    for r in results:
        megabytes = [f"{x:,.0f}" for x in (r.peak_megabytes, r.weight_megabytes, r.imported_megabytes)]
        drawn.add_row(r.library, r.dtype, f"{r.seconds:.1f}", *megabytes, f"{r.import_seconds:.1f}")
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="32 new tokens, two repeats, one load")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--force", action="store_true", help="measure although others use the processors")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads on both sides (one a processor)")
    parser.add_argument("--only", choices=("gemma", "gpt2"), help="one of the two models")
    options = parser.parse_args()
    load = require_quiet(options.force)
    n_new, repeats, loads = (32, 2, 1) if options.quick else (128, 5, 3)
    plan = Plan(n_new, repeats, loads, options.threads, bandwidth(options.threads))
    speeds: list[Decoded] = []
    loadings: list[Loaded] = []
    with tempfile.TemporaryDirectory() as temporary:
        if options.only != "gpt2":
            speeds, loadings = measure_gemma(plan, Path(temporary) / "gemma")
        if options.only != "gemma":
            speeds += measure_gpt2(plan, Path(temporary))
    if options.json:
        facts = {"plan": asdict(plan), "foreign_load": load}
        print(
            json.dumps(
                {**facts, "decode": [asdict(r) for r in speeds], "load": [asdict(r) for r in loadings]}, indent=1
            )
        )
        return
    console = Console() if sys.stdout.isatty() else Console(width=130)
    console.print(
        f"{plan.n_threads} threads, others use {load:.0%}; memory is read at {plan.bandwidth / 1e9:.1f} GB/s. "
        "Of limit: the weights' bytes a step over what that moves."
    )
    console.print(speed_table(speeds, plan))
    if loadings:
        console.print(load_table(loadings))
        first = {r.library: r for r in loadings if r.dtype == DTYPES[0]}
        console.print(f"loading is {first['transformers'].seconds / first['clearhead'].seconds:.1f} x faster")


if __name__ == "__main__":
    main()
