"""What a run leaves to be read: report.json, and report.html, one file with curves, samples and all that made it."""

from __future__ import annotations

import base64
import json
import os
import platform
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.metadata import PackageNotFoundError, version
from importlib.resources import files
from pathlib import Path
from typing import Any

from clearhead.costs.curves import Curve, draw
from clearhead.errors import ClearheadError
from clearhead.files import write_whole
from clearhead.lens.views.webpage import variables
from clearhead.training.config import TrainConfig
from clearhead.training.data.documents import hash_of
from clearhead.training.settings import leaves, plain, shown
from clearhead.training.showing import SAMPLES

REPORT, PAGE = "report.json", "report.html"
PACKAGES = ("clearhead", "torch", "numpy", "tokenizers", "safetensors")


@dataclass(frozen=True)
class Told:
    """All that a report tells of."""

    name: str
    command: str
    config: TrainConfig
    data: Mapping[str, Any]
    """What the batches were made of (`Batches.describe`)."""
    measured: Mapping[str, Any]
    n_parameters: int
    metrics: Sequence[Mapping[str, float]]
    """The lines of metrics.jsonl."""


def command_of(name: str, settings: Sequence[str], out: str | Path | None) -> str:
    """What is typed to make the same run again."""
    flags = [part for setting in settings for part in ("--set", setting)]
    return shlex.join(["clearhead", "train", name, *([] if out is None else ["--out", str(out)]), *flags])


def write_reports(folder: Path, told: Told) -> None:
    """Both files, each whole or not at all.

    Raises:
        ClearheadError: they can't be written.
    """
    about = {"command": told.command, "data_hash": hash_of(told.data), "versions": versions()}
    said = {**told.measured, **about, "config": plain(told.config)}
    for name, content in ((REPORT, json.dumps(said, indent=2) + "\n"), (PAGE, page(told, folder / SAMPLES))):
        try:
            write_whole(folder / name, content.encode())
        except OSError as problem:
            raise ClearheadError(f"{folder / name} can't be written: {problem.strerror or problem}") from problem


def versions() -> dict[str, str]:
    """Of what a run depends on, and of the machine."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return {**found, "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} processors"}


def page(told: Told, samples: Path | None = None) -> str:
    """The page, from page.html beside this file."""
    config, data = told.config, told.data
    made = {
        "data": ", ".join(f"{name} {_short(value)}" for name, value in data.items()),
        "data hash": hash_of(data),
        **versions(),
    }
    parts = {
        "@TITLE@": escape(told.name),
        "@LIGHT@": variables("light"),
        "@DARK@": variables("dark"),
        "@SUMMARY@": escape(_summary(told)),
        "@TILES@": "".join(_tile(what, value) for what, value in _tiles(told)),
        "@CURVES@": "".join(_figures(told.metrics)),
        "@SAMPLE@": _sample(samples),
        "@COMMAND@": escape(told.command),
        "@MEASURED@": _rows((name.replace("_", " "), _number(value)) for name, value in told.measured.items()),
        "@MADE@": _rows(made.items()),
        "@FIELDS@": "".join(
            f"<div><dt>{escape(path)}</dt><dd>{escape(shown(value))}</dd></div>"
            for path, value in leaves(config, fold=True)
        ),
    }
    text = files("clearhead.training").joinpath("page.html").read_text(encoding="utf-8")
    for mark, part in parts.items():
        text = text.replace(mark, part)
    return text


# ---- numbers


def _summary(told: Told) -> str:
    batch, run = told.config.batch, told.config.run
    return (
        f"{told.n_parameters:,} parameters, {run.steps:,} steps of {batch.rows} rows of {batch.length} tokens, "
        f"{run.dtype}, seed {run.seed}"
    )


def _tiles(told: Told) -> list[tuple[str, str]]:
    """The few numbers that matter most."""
    found = []
    named = {
        "held_out_loss": "held-out loss",
        "bits_per_byte": "bits per byte",
        "accuracy": "accuracy",
        "exact": "exact answers",
        "word_error_rate": "word errors",
    }
    for name, what in named.items():
        if isinstance(value := told.measured.get(name), int | float):
            is_share = name not in ("held_out_loss", "bits_per_byte")
            found.append((what, f"{value:.1%}" if is_share else f"{value:.3f}"))
    if losses := _points(told.metrics, "loss"):
        found.append(("training loss, last", f"{losses[-1][1]:.3f}"))
    if rates := sorted(value for _, value in _points(told.metrics, "tokens_per_second")):
        found.append(("tokens a second, median", f"{rates[len(rates) // 2]:,.0f}"))
    if shares := sorted(value for _, value in _points(told.metrics, "utilisation")):
        found.append(("of the machine's peak", f"{shares[len(shares) // 2]:.0%}"))
    return found


def _points(metrics: Sequence[Mapping[str, float]], name: str) -> list[tuple[float, float]]:
    return [(line["step"], line[name]) for line in metrics if name in line]


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}" if type(value) is int else str(value)


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


# ---- parts of the page


def _figures(metrics: Sequence[Mapping[str, float]]) -> Iterable[str]:
    for title, names, form in (
        ("Loss", {"loss": "of training", "held_out_loss": "held out"}, "{:.3f}"),
        ("Learning rate", {"lr": ""}, "{:.2g}"),
        ("Length of the gradient", {"norm": ""}, "{:.2f}"),
        ("Tokens a second", {"tokens_per_second": ""}, "{:,.0f}"),
        ("Share of the machine's peak", {"utilisation": ""}, "{:.0%}"),
    ):
        curves = [Curve(what or title, points) for name, what in names.items() if (points := _points(metrics, name))]
        if drawing := draw(curves, form.format, from_zero=title != "Loss"):
            keys = "".join(f'<span class="key">{escape(curve.name)}</span>' for curve in curves if len(names) > 1)
            yield f"<figure><h3>{escape(title)} {keys}</h3>{drawing}</figure>"


def _tile(what: str, value: str) -> str:
    return f'<div class="tile"><b>{escape(value)}</b><span>{escape(what)}</span></div>'


def _rows(rows: Iterable[tuple[str, str]]) -> str:
    return "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in rows)


def _sample(folder: Path | None) -> str:
    """The last sample, and its map as a picture of its own, whose style stays in it."""
    texts = sorted(folder.glob("step-*.txt")) if folder is not None else []
    if not texts:
        return ""
    last = texts[-1]
    text = escape(last.read_text(encoding="utf-8").rstrip("\n"))
    picture = ""
    for ending, kind, how in ((".svg", "svg+xml", ""), (".png", "png", ' class="cells"')):
        if (path := last.with_suffix(ending)).exists():
            data = base64.b64encode(path.read_bytes()).decode()
            picture = f'<img{how} alt="attention map" src="data:image/{kind};base64,{data}">'
            break
    step = int(last.stem.removeprefix("step-"))
    return f'<h2>Held-out data at step {step:,}</h2><div class="sample"><pre>{text}</pre>{picture}</div>'
