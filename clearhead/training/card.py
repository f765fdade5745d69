"""What a shipped model tells of itself: how it was made and how good it is, and the curve of its loss."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from clearhead.costs.curves import Curve, draw
from clearhead.training.config import DataConfig, TrainConfig

STYLE = """<style>
text { font: 12px sans-serif; fill: #777 } .end { font-weight: 600 } .grid { stroke: #8883 }
.line { fill: none; stroke-width: 1.5 } .line0 { stroke: #0072b2 } .line1 { stroke: #d55e00 }
.dot0 { fill: #0072b2 } .dot1 { fill: #d55e00 }
</style>"""


@dataclass(frozen=True, kw_only=True)
class Made:
    """A model, and how it came to be."""

    name: str
    about: str
    data: str
    commands: tuple[str, ...]
    """The run alone, and all of it."""
    config: TrainConfig
    measured: tuple[Mapping[str, Any], Mapping[str, Any]]
    """Numbers by name: as trained, in float32, and of the weights as they are shipped."""
    n_parameters: int
    snapshots: tuple[int, ...] = ()
    """The steps after which weights were kept."""


def card(made: Made, size: int, picture: str, n_ids: int | None = None) -> str:
    """The text, in Markdown. `size` is the folder's, in bytes; `n_ids` the tokens', where the model reads any."""
    run, data = made.config.run, made.config.data
    kind = f" ({data.tokenizer})" if isinstance(data, DataConfig) else ""
    tokenizer = f", {n_ids:,} token ids{kind}" if n_ids is not None else ""
    weights = f"{made.n_parameters:,} parameters, {size / 1e6:.1f} MB, stored in bfloat16 and loaded as float32"
    seeds = f"The seed of the weights is {run.seed}, of the data {data.seed}."
    parts = [
        f"# {made.name}",
        f"{made.about}. {weights}{tokenizer}.",
        f'```python\nimport clearhead\n\nmodel = clearhead.load("{made.name}")\n```',
        "## How it was made",
        "\n".join(f"    {command}" for command in made.commands),
        f"{run.steps:,} steps of {made.config.batch.rows} rows, in {run.dtype}. {seeds}",
        made.data,
        "## How good it is",
        "On what was held out, and was never learnt from:",
        _table(*made.measured),
        f"![The loss along the run]({picture})",
    ]
    if made.snapshots:
        steps = ", ".join(f"{step:,}" for step in made.snapshots)
        names = f'`clearhead.load("{made.name}@0000")` to `@{len(made.snapshots) - 1:04}`'
        parts += ["## Snapshots", f"The weights after {steps} steps: {names}, which is the model itself."]
    return "\n\n".join(parts) + "\n"


def _table(trained: Mapping[str, Any], shipped: Mapping[str, Any]) -> str:
    """What was measured twice, in two columns."""
    before, after = dict(_numbers(trained)), dict(_numbers(shipped))
    rows = [f"| {name} | {_said(before.get(name))} | {_said(value)} |" for name, value in after.items()]
    return "\n".join(["| | as trained | as shipped |", "|---|---|---|", *rows])


def _numbers(measured: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, int | float]]:
    """Every number by its name, those of parts too."""
    for name, value in measured.items():
        words = f"{before}{name.replace('_', ' ')}"
        if isinstance(value, Mapping):
            yield from _numbers(value, f"{words}: ")
        elif isinstance(value, int | float):
            yield words, value


def _said(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}" if isinstance(value, float) else json.dumps(value)


def curve(lines: Sequence[Mapping[str, Any]]) -> str:
    """The losses of a run, from the lines of its metrics, as SVG that stands alone."""
    named = {"learnt from": "loss", "held out": "held_out_loss"}
    curves = [Curve(say, [(line["step"], line[name]) for line in lines if name in line]) for say, name in named.items()]
    drawn = draw(curves, lambda loss: f"{loss:.3f}", from_zero=False) or "<svg></svg>"
    return drawn.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1).replace(">", f">{STYLE}", 1) + "\n"
