"""Training runs while they go on: their curves as they grow, what they show, and what their heads become."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from pydantic import Field

import clearhead.lens.heads as lens_heads
from clearhead.errors import ClearheadError, UsageError
from clearhead.lens import look
from clearhead.lens.heads.roles import UNKNOWN
from clearhead.lens.heads.table import SHORT, Heads
from clearhead.studio.operations import Answer, operation
from clearhead.studio.run_folders import Kept, RunFolder, seconds_since
from clearhead.taps import catalogue

if TYPE_CHECKING:
    from clearhead.studio.context import Studio

RunName = Annotated[str, Field(min_length=1, max_length=100)]
Again = Annotated[int, Field(ge=0, le=10**9)]
"""A page asks anew where a question changes: another number is the same question again."""
POINTS = 1500
"""A curve has at most so many: more than a screen shows."""
PAUSE = 0.4
WATCHED = 600.0
"""Seconds after which a page has to ask again."""
ALIVE = 90.0
"""A run that has written nothing for so many seconds is not said to be going on."""
SHUFFLES = 4
MAX_TOKENS = 64
TEXT = "The cat sat on the mat. The cat sat"

_roles: dict[tuple[str, float], Heads] = {}
"""What heads do, by the weights' path and when they were written."""


@operation("runs.list")
def listed(studio: Studio, *, again: Again = 0) -> Answer:
    """Every run below the folders that were named: how far it is, and how well it does."""
    runs = studio.models.runs
    found = [_line(run) for run in runs.all()]
    return Answer(
        data={
            "folders": [str(folder) for folder in runs.folders],
            "runs": found,
            "command": "clearhead studio --runs runs",
        },
    )


@operation("runs.watch")
def watch(studio: Studio, *, run: RunName, again: Again = 0) -> Iterator[Answer | None]:
    """A run's curves, told anew whenever something was written, until it is done; None while nothing is."""
    folder, end, stamp = studio.models.runs.get(run), time.monotonic() + WATCHED, None
    while time.monotonic() < end:
        now = folder.stamp()
        if now != stamp:
            stamp = now
            told = _curves(folder)
            yield told
            if told.data["state"] == "finished":
                return
        else:
            yield None
        time.sleep(PAUSE)


@operation("runs.sample")
def sample(
    studio: Studio, *, run: RunName, step: Annotated[int, Field(ge=-1, le=10**9)] = -1, again: Again = 0
) -> Answer:
    """What the model did with held-out data at a step (-1: the last), and its map of attention as a picture."""
    folder = studio.models.runs.get(run)
    steps = folder.samples()
    if not steps:
        return Answer(data={"run": run, "steps": [], "step": None, "text": "", "picture": None})
    at = steps[-1] if step < 0 else min(steps, key=lambda one: abs(one - step))
    text, picture = folder.sample(at)
    path = folder.path / "samples" / f"step-{at:06d}.txt"
    return Answer(
        data={"run": run, "steps": steps, "step": at, "text": text, "picture": picture},
        python=f"from pathlib import Path\n\nprint(Path({str(path)!r}).read_text())\n",
    )


@operation("runs.heads")
def heads(studio: Studio, *, run: RunName, again: Again = 0) -> Iterator[Answer | None]:
    """What each head does in all weights that are kept along a run, one after another: the history so far each time."""
    folder = studio.models.runs.get(run)
    kept = folder.kept()
    done: list[tuple[Kept, Heads]] = []
    if not kept:
        yield Answer(data={"run": run, "kept": [], "of": 0, "heads": [], "roles": []})
    for one in kept:
        known = _stamp(one) in _roles
        done.append((one, _heads_of(studio, run, one)))
        # What was found out before is told at once.
        yield None if known and len(done) < len(kept) else _history(run, done, len(kept))


@operation("runs.pattern")
def pattern(
    studio: Studio,
    *,
    run: RunName,
    at: Annotated[str, Field(max_length=40)] = "",
    text: Annotated[str, Field(max_length=2000)] = TEXT,
    layer: Annotated[int, Field(ge=0, le=999)] = 0,
    head: Annotated[int, Field(ge=0, le=999)] = 0,
    again: Again = 0,
) -> Answer:
    """Where all heads of the weights `at` (the last where it is empty) look on a text, and one of them in full."""
    folder = studio.models.runs.get(run)
    kept = folder.kept()
    if not kept:
        raise ClearheadError(f"{run} has kept no weights yet; they come with its first checkpoint")
    chosen = next((one for one in kept if one.name == at), None) if at else kept[-1]
    if chosen is None:
        raise UsageError(f"{run} has no {at} (any more); there are {', '.join(one.name for one in kept)}")
    model = studio.models.get(f"{run}@{chosen.name}")
    addresses = [name for name in catalogue(model) if name.endswith("mixer.pattern") and name.startswith("layers.")]
    if not addresses:
        raise ClearheadError(f"{run} trains a model without attention, so it has no heads to show")
    if model.tokenizer is None:
        raise ClearheadError(f"{run} trains a model that reads no text, so there is no text to look at it with")
    ids = model.tokenizer.encode(text)[:MAX_TOKENS]
    if not ids:
        raise UsageError("the text is empty; give at least one word")
    if layer >= len(addresses):
        raise UsageError(f"{run} has {len(addresses)} layers with heads, and no layer {layer}")
    # What the weights of the layer that is shown in full come from.
    scored = addresses[layer].replace("pattern", "scores")
    with studio.models.lock(f"{run}@{chosen.name}"):
        seen = look(model, ids, *addresses, scored)
    patterns = [seen[address][0].float() for address in addresses]
    if head >= len(patterns[layer]):
        raise UsageError(f"layer {layer} of {run} has {len(patterns[layer])} heads, and no head {head}")
    alike = [one for one in patterns if one.shape == patterns[0].shape]
    row_S = patterns[layer][head][-1]
    return Answer(
        data={
            "run": run,
            "at": chosen.name,
            "step": chosen.step,
            "kept": [_kept(one) for one in kept],
            "tokens": model.tokenizer.pieces(ids),
            "layer": layer,
            "head": head,
            "layers": len(patterns),
            "heads": [len(one) for one in patterns],
            "address": addresses[layer],
            "last": {"largest": int(row_S.argmax()), "weight": float(row_S.max())},
            "cut": len(model.tokenizer.encode(text)) > MAX_TOKENS,
        },
        arrays={
            "patterns": torch.stack(alike),
            "pattern": patterns[layer][head],
            "scores": seen[scored][0, head].float(),
        },
        python=(
            "import clearhead\n\n"
            f"model = clearhead.load({str(chosen.path)!r})\n"
            f"ids = model.tokenizer.encode({text!a})[:{MAX_TOKENS}]\n"
            f"seen = clearhead.look(model, ids, {addresses[layer]!r})\n"
            f"print(*seen[{addresses[layer]!r}][0, {head}, -1].tolist())\n"
        ),
        printed=tuple(float(x) for x in row_S),
    )


# ---- what is told


def _line(run: RunFolder) -> dict[str, Any]:
    lines = run.metrics()
    losses = [line for line in lines if "loss" in line]
    held = [line for line in lines if "held_out_loss" in line]
    return {
        "id": run.id,
        "path": str(run.path),
        **_progress(run, lines),
        "loss": losses[-1]["loss"] if losses else None,
        "held_out": held[-1]["held_out_loss"] if held else None,
        "at": int(losses[-1]["step"]) if losses else None,
        "since": int(losses[-2]["step"]) if len(losses) > 1 else 0,
        "held_at": int(held[-1]["step"]) if held else None,
        "file": str(run.path / "metrics.jsonl"),
        "kept": len(run.kept()),
        "samples": len(run.samples()),
    }


def _progress(run: RunFolder, lines: Sequence[dict[str, float]]) -> dict[str, Any]:
    finished, quiet = run.is_finished(), seconds_since(run.written())
    steps = run.steps()
    return {
        "step": int(lines[-1]["step"]) if lines else 0,
        "steps": steps,
        "state": "finished" if finished else "going on" if quiet < ALIVE else "stopped",
        "quiet": quiet,
    }


def _curves(run: RunFolder) -> Answer:
    lines = run.metrics()
    losses = [line for line in lines if "loss" in line]
    held = [line for line in lines if "held_out_loss" in line]
    shown = losses[:: max(1, -(-len(losses) // POINTS))]
    if losses and shown[-1] is not losses[-1]:
        shown = [*shown, losses[-1]]
    best = min(held, key=lambda line: line["held_out_loss"]) if held else None
    last = losses[-1] if losses else {}
    told = [last["loss"]] if "loss" in last else []
    told += [held[-1]["held_out_loss"]] if held else []
    return Answer(
        data={
            "run": run.id,
            "path": str(run.path),
            **_progress(run, lines),
            "last": {
                name: last[name] for name in ("loss", "lr", "norm", "tokens_per_second", "utilisation") if name in last
            },
            "held_out": None if not held else {"step": int(held[-1]["step"]), "loss": held[-1]["held_out_loss"]},
            "best": None if best is None else {"step": int(best["step"]), "loss": best["held_out_loss"]},
            "samples": run.samples(),
            "kept": [_kept(one) for one in run.kept()],
            "measured": {name: x for name, x in run.report().items() if isinstance(x, int | float)},
            "points": len(losses),
            "at": int(losses[-1]["step"]) if losses else None,
            "file": str(run.path / "metrics.jsonl"),
            "since": int(losses[-2]["step"]) if len(losses) > 1 else 0,
            "peak_lr": run.config().get("optim", {}).get("lr"),
            "n_held": len(held),
        },
        arrays={
            **{name: _column(shown, name) for name in ("step", "loss", "lr", "norm", "tokens_per_second")},
            "held_step": _column(held, "step"),
            "held_loss": _column(held, "held_out_loss"),
        },
        python=(
            "from pathlib import Path\n\n"
            "from clearhead.training.watch import read_metrics\n\n"
            f"lines = read_metrics(Path({str(run.path)!r}))\n"
            + ('print([line["loss"] for line in lines if "loss" in line][-1])\n' if "loss" in last else "")
            + ('print([line["held_out_loss"] for line in lines if "held_out_loss" in line][-1])\n' if held else "")
        ),
        printed=tuple(told),
    )


def _column(lines: Sequence[dict[str, float]], name: str) -> np.ndarray:
    values = [line.get(name, float("nan")) for line in lines]
    return np.array(values, np.int32 if name == "step" else np.float32)


def _kept(one: Kept) -> dict[str, Any]:
    return {"name": one.name, "kind": one.kind, "step": one.step}


def _stamp(one: Kept) -> tuple[str, float]:
    return (str(one.path), one.path.stat().st_mtime if one.path.exists() else 0.0)


def _heads_of(studio: Studio, run: str, one: Kept) -> Heads:
    stamp = _stamp(one)
    if stamp not in _roles:
        id = f"{run}@{one.name}"
        model = studio.models.get(id)
        if not any(name.endswith(".pattern") for name in catalogue(model)):
            raise ClearheadError(f"{run} trains a model without attention, so it has no heads to show")
        with studio.models.lock(id):
            _roles[stamp] = lens_heads.heads(model, shuffles=SHUFFLES)
    return _roles[stamp]


def _history(run: str, done: Sequence[tuple[Kept, Heads]], of: int) -> Answer:
    """Of every head, in each of the weights: its role, and the score behind it."""
    last = done[-1][1]
    table = [
        {
            "name": head.name,
            "layer": head.layer,
            "head": head.head,
            "roles": [found[i].role for _, found in done],
            "short": ["" if found[i].role == UNKNOWN else SHORT.get(found[i].role, found[i].role) for _, found in done],
        }
        for i, head in enumerate(last)
    ]
    roles = {role for _, found in done for role in (head.role for head in found) if role != UNKNOWN}
    scores_KN = np.array([[_score(found, i) for i in range(len(last))] for _, found in done], np.float32)
    measures = sorted(roles)
    return Answer(
        data={
            "run": run,
            "kept": [_kept(one) for one, _ in done],
            "of": of,
            "heads": table,
            "roles": measures,
            "unknown": [found.unknown for _, found in done],
            "n_unknown": [len(found.found(UNKNOWN)) for _, found in done],
            "by_role": [_by_role(found) for _, found in done],
        },
        arrays={
            "scores": scores_KN,
            **{
                f"of {role}": np.array(
                    [[_measure(found, i, role) for i in range(len(last))] for _, found in done], np.float32
                )
                for role in measures
            },
        },
        python=(
            "import clearhead\n\n"
            f"kept = {[str(one.path) for one, _ in done]!r}\n"
            "for path in kept:\n"
            f"    print(clearhead.heads(clearhead.load(path), shuffles={SHUFFLES}).unknown)\n"
        ),
        printed=tuple(found.unknown for _, found in done),
    )


def _by_role(found: Heads) -> list[dict[str, Any]]:
    """Each role with its heads, the most frequent first and what nothing is known of last."""
    roles: dict[str, list[str]] = {}
    for head in found:
        roles.setdefault(head.role, []).append(head.name)
    order = sorted(roles, key=lambda role: (role == UNKNOWN, -len(roles[role])))
    return [{"role": role, "n": len(roles[role]), "heads": roles[role]} for role in order]


def _score(found: Heads, i: int) -> float:
    best = found[i].best
    return 0.0 if best is None else best.score


def _measure(found: Heads, i: int, role: str) -> float:
    measure = found[i].measures.get(role)
    return 0.0 if measure is None else measure.score
