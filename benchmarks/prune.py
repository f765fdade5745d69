"""What a model gains by losing heads: whole passes, and steps of decoding, before and after.

    python -m benchmarks.prune [SOURCE ...] [--heads 25%] [--tokens 256] [--json] [--force]

Heads go in a random order, since which they are makes no difference to time. Both models run in turn in one process;
times are medians. The limit is the share of the matrices' numbers that is left.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import clearhead
from benchmarks.machine import medians, require_quiet, threads
from clearhead.cli.prune import share_of
from clearhead.lens.pruning.choice import choose, how_many
from clearhead.lens.pruning.importance import head_layers, importance
from clearhead.model.pruned import without_heads

SOURCES = ("clear-gpt", "gemma3-270m")
STEPS = 16


@dataclass(frozen=True)
class Gained:
    """One line of the table."""

    source: str
    work: str
    heads: tuple[int, int]
    """Before and after."""
    matrices: float
    """The share of the numbers of the layers' matrices that is left."""
    seconds: tuple[float, float]
    ratio: float
    """Of the time: after over before."""


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.prune")
    parser.add_argument("sources", nargs="*", default=list(SOURCES), metavar="SOURCE")
    parser.add_argument("--heads", default="25%")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--force", action="store_true")
    options = parser.parse_args(argv)
    require_quiet(options.force)
    rows = [row for source in options.sources for row in measure(source, options)]
    if options.json:
        json.dump([asdict(row) for row in rows], sys.stdout)
        return
    table = Table(title=f"{options.tokens} tokens, float32, {threads()} threads")
    for name in ("model", "work", "heads", "layers' numbers left", "ms before", "ms after", "ratio"):
        table.add_column(name)
    for row in rows:
        times = [f"{1000 * seconds:.2f}" for seconds in row.seconds]
        heads = f"{row.heads[0]} to {row.heads[1]}"
        table.add_row(row.source, row.work, heads, f"{row.matrices:.3f}", *times, f"{row.ratio:.3f}")
    Console().print(table)


def measure(source: str, options: Any) -> list[Gained]:
    """A model before and after."""
    whole = clearhead.load(source, dtype="float32")
    layers = head_layers(whole.config)
    cut = choose(layers, importance(whole, (), "random"), how_many(share_of(options.heads), layers))
    models = {"before": whole, "after": without_heads(whole, cut)}
    tokens_BT = torch.randint(0, whole.config.vocab_size, (1, options.tokens))
    work = {"pass": lambda model: model(tokens_BT, last=1), "decoding": lambda model: decode(model, tokens_BT)}
    counts = [sum(layer.n_heads for layer in head_layers(model.config)) for model in models.values()]
    sizes = [sum(p.numel() for p in model.layers.parameters()) for model in models.values()]
    rows = []
    for name, run in work.items():
        runs = {which: (lambda run=run, model=model: run(model)) for which, model in models.items()}
        with torch.no_grad():
            times = medians(runs, options.repeats, warm_ups=2)
        seconds = (times["before"], times["after"])
        rows.append(Gained(source, name, (counts[0], counts[1]), sizes[1] / sizes[0], seconds, seconds[1] / seconds[0]))
    return rows


def decode(model: Any, tokens_BT: torch.Tensor) -> None:
    """The text, and some steps behind it."""
    state = model.new_state(tokens_BT.shape[1] + STEPS)
    model(tokens_BT, state=state, last=1)
    for _ in range(STEPS):
        model(tokens_BT[:, :1], state=state)


if __name__ == "__main__":
    main()
