"""Runs of `clearhead train` as points for a law of scaling: how large, on how many tokens, and the loss in the end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.costs.count import counts
from clearhead.errors import ClearheadError
from clearhead.families import family_of

REPORT, CONFIG = "report.json", "config.json"


@dataclass(frozen=True)
class Run:
    """One training."""

    name: str
    parameters: int
    """Of the whole model, embeddings included."""
    tokens: int
    """Places in all its batches."""
    loss: float
    """On held-out data in the end, in nats a token."""


def read_runs(folder: str | Path) -> list[Run]:
    """All finished runs in a folder and below it, by their reports and the configs of their last checkpoints.

    Raises:
        ClearheadError: there are none, they are of different data, or one can't be read or lacks a held-out loss.
    """
    folder = Path(folder).expanduser()
    if not folder.is_dir():
        raise ClearheadError(f"there is no folder {folder}; give one with runs of `clearhead train` in it")
    reports = {path.parent: _json(path) for path in sorted(folder.rglob(REPORT))}
    reports = {where: said for where, said in reports.items() if "held_out_loss_before" not in said}
    if not reports:
        raise ClearheadError(
            f"{folder} has no finished runs that began from nothing: there is no {REPORT} of one in it"
        )
    found, data = [], {}
    for where, said in reports.items():
        found.append(_run(where, where.relative_to(folder).as_posix(), said))
        data[where] = said["config"].get("data")
    first, *others = data
    other = next((where for where in others if data[where] != data[first]), None)
    if other is not None:
        raise ClearheadError(
            f"the runs {first} and {other} are of different data, and losses on different texts don't make one law; "
            "put the runs of one data set in a folder of their own"
        )
    return found


def _run(where: Path, name: str, said: Mapping[str, Any]) -> Run:
    try:
        batch = said["config"]["batch"]
        tokens = int(said["steps"]) * int(batch["rows"]) * int(batch["length"])
        checkpoint = where / Path(said["checkpoint"]).name
    except (KeyError, TypeError, ValueError) as problem:
        raise ClearheadError(
            f"{where / REPORT} is not a report of `clearhead train` ({problem} is not there)"
        ) from None
    if not isinstance(loss := said.get("held_out_loss"), float):
        raise ClearheadError(f"{where}: its report has no held_out_loss; hold data out (data.held_out) to measure it")
    raw = _json(checkpoint / CONFIG)
    config = family_of(raw, str(checkpoint / CONFIG)).read(raw, str(checkpoint / CONFIG))
    return Run(name, counts(config).parameters.trained, tokens, loss)


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise ClearheadError(f"{path} can't be read: {problem}") from None
    if not isinstance(found, dict):
        raise ClearheadError(f"{path} is not what was expected: it holds no JSON object")
    return found
