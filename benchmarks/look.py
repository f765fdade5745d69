"""What looking costs, beside TransformerLens, nnsight and the `transformers` package, in one run, taking turns.

    python -m benchmarks.look [--quick] [--json] [--force] [--threads N] [--tokens N] [--peers FOLDER] [--system-memory]

A GPT-2 of 124M with the same random weights on every side, one text of 256 tokens, float32, no gradients. Each side is
a process of its own and makes one pass in turn: with nobody looking, with the means of looking and nothing looked at,
and recording every activation that it has a name for (patterns included). Ratios are to the plain pass with the fused
kernel: clearhead's to its own, all others' to that of `transformers`. A side whose plain pass is slow has room to
hide the cost of looking in, so the time of every pass is also given as a ratio to one and the same, the plain pass of
`transformers`. Seconds are medians; memory is the most that a pass held above what stood before it.

What is recorded is new memory, and asking the system for it takes longer than filling it. So every side keeps what it
frees (two settings of the C library), as a process that looks again and again would have it; --system-memory leaves
that out, which costs every side alike.

TransformerLens and nnsight are no requirements of clearhead's. They are looked for in a folder, which this makes:

    pip install --no-deps --target FOLDER transformer-lens nnsight einops fancy_einsum better-abc \\
        transformers-stream-generator greenlet websocket-client zstandard wandb
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.machine import require_quiet
from benchmarks.worker import NotInstalledError, Worker

OURS, THEIRS = "clearhead", "transformers"
SIDES = (OURS, THEIRS, "transformer_lens", "nnsight")
KEEPS = {"MALLOC_TRIM_THRESHOLD_": str(2**32), "MALLOC_MMAP_THRESHOLD_": str(2**32)}
MEGABYTE = 10**6
TOLERANCE = 1e-3
"""Of the logits of two sides: float32 through twelve layers, in other orders of summing."""


@dataclass(frozen=True)
class Plan:
    """How much is measured, and with what."""

    turns: int
    threads: int
    tokens: int
    peers: str
    """Where libraries are imported from that are not installed."""
    system_memory: bool


@dataclass(frozen=True)
class Line:
    """One kind of pass of one library."""

    library: str
    what: str
    seconds: float
    ratio: float
    """To the plain pass with the fused kernel."""
    spread: float
    """Half the distance between the quartiles of its seconds, over their median."""
    peak_megabytes: float
    memory_ratio: float
    kept: str
    """How many tensors it gave, and how many megabytes."""


def start(plan: Plan, weights: str) -> tuple[dict[str, Worker], dict[str, str]]:
    """The sides that can be measured, and what is wrong with the others."""
    made = [sys.executable, "-m", "benchmarks.look_worker", "save", weights, str(plan.threads), str(plan.tokens)]
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    sides, missing = {}, {}
    for library in SIDES:
        try:
            arguments = [library, weights, str(plan.threads), str(plan.tokens), plan.peers]
            kept = {} if plan.system_memory else KEEPS
            sides[library] = Worker("benchmarks.look_worker", arguments, plan.threads, kept)
        except NotInstalledError as problem:
            missing[library] = f"not installed ({problem}); see --help"
    return sides, missing


def measure(sides: dict[str, Worker], plan: Plan) -> list[Line]:
    """All kinds of passes of all sides, in turn."""
    runs = [(library, run) for library, side in sides.items() for run in side.made["runs"]]
    outputs = {pair: sides[pair[0]].ask(run=pair[1], what="output") for pair in runs}
    _same(outputs)
    times: dict[tuple[str, str], list[float]] = {pair: [] for pair in runs}
    for turn in range(plan.turns + 1):
        for library, run in runs:
            seconds = sides[library].ask(run=run, what="seconds")["seconds"]
            if turn:  # the first warms up
                times[library, run].append(seconds)
    peaks = {(library, run): max(1, sides[library].ask(run=run, what="peak")["bytes"]) for library, run in runs}
    lines = []
    for library, run in runs:
        plain = (OURS if library == OURS else THEIRS, "plain")
        median = statistics.median(times[library, run])
        # A turn's own plain pass is what it is compared with: slow spells of the machine then hit both.
        ratios = [one / other for one, other in zip(times[library, run], times[plain], strict=True)]
        low, _, high = statistics.quantiles(times[library, run], n=4)
        output = outputs[library, run]
        lines.append(
            Line(
                library=library,
                what=run,
                seconds=median,
                ratio=statistics.median(ratios),
                spread=(high - low) / 2 / median,
                peak_megabytes=peaks[library, run] / MEGABYTE,
                memory_ratio=peaks[library, run] / peaks[plain],
                kept=f"{output['n_kept']}, {output['kept_bytes'] / MEGABYTE:.0f} MB" if output["n_kept"] else "",
            )
        )
    return lines


def _same(outputs: dict[tuple[str, str], dict[str, Any]]) -> None:
    """All sides have the same weights and ids, so the same logits, or one of them does something else."""
    expected = outputs[OURS, "plain"]["logits"]
    for (library, run), output in outputs.items():
        apart = max(abs(a - b) for a, b in zip(output["logits"], expected, strict=True))
        if apart > TOLERANCE:
            sys.exit(f"{library} ({run}) gives other logits than clearhead, by {apart:.2g}; it does something else")


def table(lines: list[Line], plan: Plan) -> Table:
    drawn = Table(title=f"GPT-2 124M, {plan.tokens} tokens, float32; one pass in turn, medians of {plan.turns}")
    for name in ("library", "looked at"):
        drawn.add_column(name)
    for name in (
        "ms",
        "± %",
        "to the fused pass",
        f"to {THEIRS}' pass",
        "peak MB",
        "to the fused pass",
        "tensors kept",
    ):
        drawn.add_column(name, justify="right")
    (theirs,) = (line.seconds for line in lines if (line.library, line.what) == (THEIRS, "plain"))
    words = {"plain": "nobody looks", "nothing": "nothing", "all": "everything"}
    for line in lines:
        drawn.add_row(
            line.library,
            words[line.what],
            f"{line.seconds * 1e3:.0f}",
            f"{line.spread * 100:.1f}",
            f"{line.ratio:.3f}",
            f"{line.seconds / theirs:.3f}",
            f"{line.peak_megabytes:.0f}",
            f"{line.memory_ratio:.2f}",
            line.kept,
        )
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="five turns")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--force", action="store_true", help="measure although others use the processors")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads on all sides (one a processor)")
    parser.add_argument("--tokens", type=int, default=256, help="the length of the text")
    parser.add_argument("--turns", type=int, help="passes of each kind that are measured")
    parser.add_argument("--peers", default="", metavar="FOLDER", help="where TransformerLens and nnsight are")
    parser.add_argument("--system-memory", action="store_true", help="give memory back to the system as it is freed")
    options = parser.parse_args()
    load = require_quiet(options.force)
    turns = options.turns or (5 if options.quick else 15)
    plan = Plan(turns, options.threads, options.tokens, options.peers, options.system_memory)
    with tempfile.TemporaryDirectory() as temporary:
        sides, missing = start(plan, temporary)
        lines = measure(sides, plan)
        for side in sides.values():
            side.close()
    if options.json:
        facts = {"plan": asdict(plan), "foreign_load": load, "missing": missing}
        print(json.dumps({**facts, "lines": [asdict(line) for line in lines]}, indent=1))
        return
    console = Console() if sys.stdout.isatty() else Console(width=150)
    console.print(f"{plan.threads} threads, others use {load:.0%}")
    for library, why in missing.items():
        console.print(f"{library}: {why}")
    console.print(table(lines, plan))


if __name__ == "__main__":
    main()
