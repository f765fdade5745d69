"""Texts to vectors beside sentence-transformers, in one run, taking turns.

    python -m benchmarks.embed [--quick] [--json] [--force] [--threads N]

MiniLM-L6 over 1,000 texts of unequal length, made of words of its vocabulary: as many words as sentences have (18 in
the middle, up to 230), and as many as search queries have (3). Each side runs in a process of its own with its
defaults, sentence-transformers with batches of 32. Times are medians, from texts to vectors. The limit is the products'
operations of the real tokens, as `clearhead cost` counts them, at the measured peak.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.machine import require_quiet
from benchmarks.worker import NotInstalledError, Worker

MODEL = "minilm-l6"
OURS, PEER = "clearhead", "sentence-transformers"
N_TEXTS = 1000
KINDS = {"sentences": 18.0, "queries": 3.0}
"""How many words texts have in the middle."""
SPREAD, LONGEST = 0.8, 230
TOLERANCE = 1e-5
"""How far the two sides' vectors may be apart."""


@dataclass(frozen=True)
class Line:
    """One line of the table."""

    texts: str
    tokens: int
    seconds: dict[str, float]
    ratio: float | None
    """How many times faster clearhead is."""
    share_of_limit: dict[str, float]
    apart: float | None
    """The greatest difference of two numbers of the vectors."""


def make_texts(words: list[str], middle: float, n: int = N_TEXTS) -> list[str]:
    """Lengths fall off as those of sentences do: their logarithms are normally distributed."""
    draw = random.Random(0)
    lengths = [round(draw.lognormvariate(math.log(middle), SPREAD)) for _ in range(n)]
    return [" ".join(draw.choices(words, k=min(LONGEST, max(1, length)))) for length in lengths]


def measure(kind: str, words: list[str], sides: dict[str, Worker], repeats: int, peak: float) -> Line:
    """One kind of texts."""
    texts = make_texts(words, KINDS[kind])
    found = {name: side.ask(texts=texts, vectors=True) for name, side in sides.items()}
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, side in sides.items():
            seconds[name].append(side.ask(texts=texts)["seconds"])
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    apart = None
    if PEER in found:
        rows = zip(found[OURS]["vectors"], found[PEER]["vectors"], strict=True)
        apart = max(abs(a - b) for ours, theirs in rows for a, b in zip(ours, theirs, strict=True))
        if apart > TOLERANCE:
            sys.exit(f"the vectors of {kind} are {apart:.1e} apart; a ratio of their times would mean nothing")
    limit = found[OURS]["flops"] / peak
    return Line(
        texts=kind,
        tokens=found[OURS]["tokens"],
        seconds=medians,
        ratio=medians[PEER] / medians[OURS] if PEER in medians else None,
        share_of_limit={name: limit / time for name, time in medians.items()},
        apart=apart,
    )


def start(library: str, folder: str, n_threads: int) -> Worker | None:
    """A side, where its library is there."""
    try:
        return Worker("benchmarks.embed_worker", [library, folder, str(n_threads)], n_threads)
    except NotInstalledError as error:
        print(f"{library} is left out: {error}", file=sys.stderr)
        return None


def table(lines: list[Line], title: str) -> Table:
    drawn = Table(title=title)
    drawn.add_column("texts")
    drawn.add_column("tokens", justify="right")
    for name in lines[0].seconds:
        drawn.add_column(f"{name}\nseconds", justify="right")
        drawn.add_column("of limit", justify="right")
    drawn.add_column("ratio", justify="right")
    drawn.add_column("apart", justify="right")
    for line in lines:
        cells = [line.texts, f"{line.tokens:,}"]
        for name, time in line.seconds.items():
            cells += [f"{time:.2f}", f"{line.share_of_limit[name]:.0%}"]
        cells.append("" if line.ratio is None else f"{line.ratio:.2f} x")
        cells.append("" if line.apart is None else f"{line.apart:.0e}")
        drawn.add_row(*cells)
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two repeats")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--force", action="store_true", help="measure although others use the processors")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads on both sides (one a processor)")
    options = parser.parse_args()
    load = require_quiet(options.force)
    import torch

    from clearhead.checkpoints import open_checkpoint
    from clearhead.costs.machine import this_peak

    torch.set_num_threads(options.threads)
    peak = this_peak(torch.float32)
    with open_checkpoint(MODEL) as checkpoint:
        folder = Path(checkpoint.where)
        listed = (folder / "vocab.txt").read_text(encoding="utf-8").split()
        words = [word for word in listed if word.isascii() and word.isalpha() and len(word) > 2]
        started = {name: start(name, str(folder), options.threads) for name in (OURS, PEER)}
        sides = {name: side for name, side in started.items() if side is not None}
        lines = [measure(kind, words, sides, 2 if options.quick else 5, peak) for kind in KINDS]
        for side in sides.values():
            side.close()
    if options.json:
        facts = {"threads": options.threads, "foreign_load": load, "peak": peak}
        print(json.dumps({**facts, "embed": [asdict(line) for line in lines]}, indent=1))
        return
    console = Console() if sys.stdout.isatty() else Console(width=120)
    console.print(f"{options.threads} threads, others use {load:.0%}; products at {peak / 1e9:,.0f} GFLOP/s at most")
    console.print(table(lines, f"{MODEL}, {N_TEXTS:,} texts, float32, from text to vector"))


if __name__ == "__main__":
    main()
