"""Training beside `transformers`, litgpt and nanoGPT, in one run, taking turns.

    python -m benchmarks.training [--quick] [--only SHAPE ...] [--dtypes D ...] [--settings S ...] [--json] [--force]
                                  [--threads N] [--litgpt FOLDER] [--nanogpt FOLDER]

GPT-2 124M on 4 rows of 256 tokens, and 6 layers of 384 with 6 heads on 16 rows of 256, with the same random ids and no
dropout; ours starts from the weights that `transformers` drew, so that their losses must be the same. Each side is a
process of its own and takes one step in turn. Seconds are medians after a first step, which compiles; memory is the
most that the steps after it held, above what a side held when its libraries were imported. Utilisation: the step's
multiplications over what the machine does in a product of two large float32 matrices.

litgpt is no requirement of clearhead's. It is looked for in a folder, which this makes (without another torch):

    pip install --no-deps --target FOLDER litgpt lightning lightning-utilities torchmetrics jsonargparse

nanoGPT is one file of its repository, model.py: name the folder that holds it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.machine import matmul_flops, require_quiet
from benchmarks.training_worker import Shape, Task
from benchmarks.worker import NotInstalledError, Worker

SHAPES = {
    "gpt2-124m": Shape(d_model=768, n_layers=12, n_heads=12, vocab_size=50257, context=1024, rows=4, length=256),
    "6x384": Shape(d_model=384, n_layers=6, n_heads=6, vocab_size=65, context=256, rows=16, length=256),
}
DTYPES = ("float32", "bfloat16")
SETTINGS = ("eager", "compiled")
OURS, SAME_WEIGHTS = "clearhead", "transformers"
PATIENCE = 90
"""After so many seconds of turns, what was measured is enough."""


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    shape: str
    dtype: str
    setting: str
    library: str
    tokens_per_second: float
    peak_megabytes: float
    utilisation: float
    losses: list[float]
    """Of the first steps."""
    times: list[float] = field(repr=False)
    """Seconds of each step that was measured."""
    cpu_seconds: float
    """Of processors, of a step, at the median."""
    parameters: int
    first_seconds: float
    """Of the first step, with compiling where there is any, all sides at once."""


@dataclass(frozen=True)
class Plan:
    """How much is measured, and with what."""

    turns: int
    threads: int
    force: bool
    folders: dict[str, str]
    """Where libraries are imported from that are not installed."""
    matmul_flops: float


def worker(task: Task) -> Worker:
    """One library with one model."""
    return Worker(
        "benchmarks.training_worker", [json.dumps(asdict(task))], task.threads, {"CLEARHEAD_SHAPE_CHECKS": "0"}
    )


def measure(name: str, dtype: str, setting: str, libraries: list[str], plan: Plan, weights: Path) -> list[Line]:
    """The lines of one setting: all libraries side by side."""
    shape = SHAPES[name]
    sides: dict[str, Worker] = {}
    for library in libraries:
        task = Task(
            library=library,
            shape=shape,
            dtype=dtype,
            compiled=setting == "compiled",
            threads=plan.threads,
            weights=str(weights),
            code=plan.folders.get(library, ""),
        )
        sides[library] = worker(task)
    # The first step compiles, for a minute or more where a whole model is compiled: all do it at once.
    for side in sides.values():
        side.begin(steps=1)
    first = {library: side.answer() for library, side in sides.items()}
    turns: dict[str, list[dict[str, Any]]] = {library: [] for library in sides}
    start = time.monotonic()
    for turn in range(plan.turns):
        for library, side in sides.items():
            turns[library].append(side.ask(steps=1, forget=turn == 0))
        if time.monotonic() - start > PATIENCE:
            break
    lines = []
    for library, side in sides.items():
        side.close()
        times = [one["seconds"] for one in turns[library]]
        seconds = statistics.median(times)
        lines.append(
            Line(
                shape=name,
                dtype=dtype,
                setting=setting,
                library=library,
                tokens_per_second=shape.tokens / seconds,
                peak_megabytes=max(one["peak_bytes"] for one in turns[library]) / 10**6,
                utilisation=shape.flops / seconds / plan.matmul_flops,
                losses=[one["losses"][0] for one in (first[library], *turns[library])][:3],
                times=times,
                cpu_seconds=statistics.median(one["cpu_seconds"] for one in turns[library]),
                parameters=side.made["parameters"],
                first_seconds=first[library]["seconds"],
            )
        )
    _same_losses(lines)
    return lines


def _same_losses(lines: list[Line]) -> None:
    """Two sides with the same weights and ids have the same losses, or one of them does something else."""
    found = {line.library: line for line in lines}
    if OURS not in found or SAME_WEIGHTS not in found:
        return
    ours, theirs = found[OURS].losses, found[SAME_WEIGHTS].losses
    apart = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    if apart > (1e-3 if lines[0].dtype == "float32" else 3e-2):
        sys.exit(f"{lines[0].shape}: clearhead's losses are {ours} and the peer's {theirs}; they don't do the same")


def available(plan: Plan, shapes: list[str], folder: Path) -> tuple[list[str], dict[str, str]]:
    """The libraries that can be measured, and what is wrong with the others. The weights of the shapes are made."""
    small = Shape(d_model=32, n_layers=1, n_heads=2, vocab_size=32, context=16, rows=1, length=16)
    found, missing = [OURS, SAME_WEIGHTS], {}
    for library in ("litgpt", "nanogpt"):
        task = Task(
            library=library,
            shape=small,
            dtype=DTYPES[0],
            compiled=False,
            threads=1,
            weights="",
            code=plan.folders.get(library, ""),
        )
        try:
            worker(task).close()
            found.append(library)
        except NotInstalledError as problem:
            missing[library] = f"not installed ({problem}); see --help"
    for name in shapes:
        task = Task(
            library=SAME_WEIGHTS,
            shape=SHAPES[name],
            dtype=DTYPES[0],
            compiled=False,
            threads=plan.threads,
            weights=str(folder / name),
        )
        worker(task).close()
    return found, missing


def best(lines: list[Line], shape: str, dtype: str) -> dict[str, Line]:
    """The quickest setting of each library."""
    found: dict[str, Line] = {}
    for line in lines:
        if (line.shape, line.dtype) == (shape, dtype):
            before = found.get(line.library)
            if before is None or line.tokens_per_second > before.tokens_per_second:
                found[line.library] = line
    return found


def verdicts(lines: list[Line]) -> list[dict[str, Any]]:
    """For each shape and dtype, clearhead's best setting against the best of the others' best."""
    out = []
    for shape, dtype in dict.fromkeys((line.shape, line.dtype) for line in lines):
        found = best(lines, shape, dtype)
        ours, others = found[OURS], [line for library, line in found.items() if library != OURS]
        if not others:
            continue
        quickest = max(others, key=lambda line: line.tokens_per_second)
        leanest = min(others, key=lambda line: line.peak_megabytes)
        out.append(
            {
                "shape": shape,
                "dtype": dtype,
                "speed": ours.tokens_per_second / quickest.tokens_per_second,
                "against": f"{quickest.library}, {quickest.setting}",
                "memory": ours.peak_megabytes / leanest.peak_megabytes,
                "memory_against": f"{leanest.library}, {leanest.setting}",
                "setting": ours.setting,
            }
        )
    return out


def table(lines: list[Line], plan: Plan) -> Table:
    drawn = Table(title=f"one step in turn, medians of up to {plan.turns}")
    for name in ("shape", "dtype", "setting", "library"):
        drawn.add_column(name)
    for name in ("tokens/s", "utilisation", "peak MB", "s a step", "least s", "CPU s", "first s", "M weights", "loss"):
        drawn.add_column(name, justify="right")
    for line in lines:
        drawn.add_row(
            line.shape,
            line.dtype,
            line.setting,
            line.library,
            f"{line.tokens_per_second:,.0f}",
            f"{line.utilisation:.0%}",
            f"{line.peak_megabytes:,.0f}",
            f"{statistics.median(line.times):.2f}",
            f"{min(line.times):.2f}",
            f"{line.cpu_seconds:.2f}",
            f"{line.first_seconds:.1f}",
            f"{line.parameters / 1e6:.2f}",
            f"{line.losses[-1]:.4f}",
        )
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="three turns, and bfloat16 only if it is asked for")
    parser.add_argument("--only", nargs="+", choices=SHAPES, default=list(SHAPES), help="these shapes")
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, help="these dtypes")
    parser.add_argument("--settings", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--libraries", nargs="+", help="these libraries")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--force", action="store_true", help="measure although others use the processors")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads on all sides (one a processor)")
    parser.add_argument("--turns", type=int, help="steps that are measured of each side")
    parser.add_argument("--litgpt", default="", metavar="FOLDER", help="where litgpt was installed")
    parser.add_argument("--nanogpt", default="", metavar="FOLDER", help="where nanoGPT's model.py is")
    options = parser.parse_args()
    load = require_quiet(options.force)
    import torch

    torch.set_num_threads(options.threads)
    folders = {"litgpt": options.litgpt, "nanogpt": options.nanogpt}
    turns = options.turns or (3 if options.quick else 7)
    plan = Plan(turns, options.threads, options.force, folders, matmul_flops(2048))
    lines: list[Line] = []
    console = Console(stderr=True)
    with tempfile.TemporaryDirectory() as temporary:
        libraries, missing = available(plan, options.only, Path(temporary))
        libraries = [library for library in libraries if library in (options.libraries or libraries)]
        for dtype in options.dtypes or (DTYPES[:1] if options.quick else DTYPES):
            for name in options.only:
                for setting in options.settings:
                    with console.status(f"{name}, {dtype}, {setting}"):
                        lines += measure(name, dtype, setting, libraries, plan, Path(temporary) / name)
    found = verdicts(lines)
    if options.json:
        facts = {"plan": asdict(plan), "foreign_load": load, "missing": missing, "verdicts": found}
        print(json.dumps({**facts, "lines": [asdict(line) for line in lines]}, indent=1))
        return
    console = Console() if sys.stdout.isatty() else Console(width=160)
    console.print(
        f"{plan.threads} threads, others use {load:.0%}; a product of matrices runs at "
        f"{plan.matmul_flops / 1e9:.0f} GFLOP/s"
    )
    for library, why in missing.items():
        console.print(f"{library}: {why}")
    console.print(table(lines, plan))
    for v in found:
        console.print(
            f"{v['shape']}, {v['dtype']}: clearhead ({v['setting']}) has {v['speed']:.2f} x the tokens/s of "
            f"{v['against']}, and {v['memory']:.2f} x the peak memory of {v['memory_against']}"
        )


if __name__ == "__main__":
    main()
