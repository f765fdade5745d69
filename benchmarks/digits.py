"""How the recipe `vit_digits` came to its learning rate, and what it reaches on writers that it never saw.

    python -m benchmarks.digits [--rates 0.01 0.02] [--json]

The rate: several are tried on the four fifths that the recipe learns from, of which a fifth again is measured; the best
is the one of least loss there. Then two runs at that rate: without a random fifth of each digit, as the recipe; and
without the last fifth of the file, which other people wrote. What is held out of those two chooses nothing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from clearhead.training.config import PicturesConfig, TrainConfig
from clearhead.training.recipes.vit_digits import vit_digits
from clearhead.training.run import train

RATES = (4e-3, 7.5e-3, 1.5e-2)
VALIDATION = 0.2


def tried(
    rate: float, *, validation: float = 0.0, split: Literal["labels", "last"] = "labels", steps: int | None = None
) -> dict[str, Any]:
    """What a run of the recipe at a rate reports."""
    config: TrainConfig = vit_digits()
    assert isinstance(config.data, PicturesConfig)
    config = replace(
        config,
        optim=replace(config.optim, lr=rate),
        data=replace(config.data, validation=validation, split=split),
        run=config.run if steps is None else replace(config.run, steps=steps),
    )
    with tempfile.TemporaryDirectory() as folder:
        report = train(config, out=Path(folder) / "run", quiet=True).report
    assert report is not None
    return report


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rates", type=float, nargs="+", default=RATES)
    parser.add_argument("--steps", type=int, help="fewer than the recipe's, to see that it works")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = [(rate, "validation", tried(rate, validation=VALIDATION, steps=options.steps)) for rate in options.rates]
    best = min(rows, key=lambda row: float(row[2]["loss"]))[0]
    rows.append((best, "a random fifth of each digit", tried(best, steps=options.steps)))
    rows.append((best, "the last fifth, other writers", tried(best, split="last", steps=options.steps)))
    if options.json:
        keys = ("labelled", "accuracy", "loss")
        print(json.dumps([{"lr": lr, "on": on, **{key: found[key] for key in keys}} for lr, on, found in rows]))
        return
    table = Table("learning rate", "measured on", "pictures", "right", "loss")
    for lr, on, found in rows:
        table.add_row(f"{lr:g}", on, f"{found['labelled']}", f"{found['accuracy']:.2%}", f"{found['loss']:.4f}")
    Console().print(table)


if __name__ == "__main__":
    main()
