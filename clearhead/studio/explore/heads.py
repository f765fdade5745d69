"""What each head of a model does, by its role, measured once a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import Field

from clearhead.lens.heads import heads as measure
from clearhead.lens.heads.measure import LEAST_SPREAD
from clearhead.lens.heads.roles import EFFECT, SURE, UNKNOWN
from clearhead.lens.heads.table import SHORT, Head, Heads
from clearhead.studio.explore.background import Working
from clearhead.studio.kept import KeptResults
from clearhead.studio.operations import Answer, operation

if TYPE_CHECKING:
    from clearhead.studio.context import Studio

_kept: KeptResults[Heads] = KeptResults(16)


@operation("explore.heads")
def heads(
    studio: Studio,
    *,
    model: Annotated[str, Field(min_length=1, max_length=200)],
) -> Iterator[Answer]:
    """A line a head: its role, score, control and how sure that is; then all of them in one answer.

    On a text of the library's own, so the table is of the model and not of what is written in the box.
    """
    key = _kept.key(studio.models, model)
    found = _kept.get(key)
    if found is None:
        loaded = studio.models.get(model)

        def measured(progress: Any) -> Heads:
            # Measured in a thread of its own, which takes the lock itself.
            with studio.models.lock(model):
                return measure(loaded, progress=progress)

        working = Working(measured)
        for share in working.steps():
            yield Answer(data={"model": model, "share": min(share, 1.0), "done": False})
        found = _kept.put(key, working.result)
    yield _answer(model, studio.models.code(model), found)


def _answer(model: str, loading: str, found: Heads) -> Answer:
    lines = [_line(head) for head in found]
    roles: dict[str, int] = {}
    for head in found:
        roles[head.role] = roles.get(head.role, 0) + 1
    order = sorted(roles, key=lambda role: (role == UNKNOWN, -roles[role]))
    values = found.values
    python = "\n".join(
        [
            "import clearhead",
            "",
            loading,
            "found = clearhead.heads(model)",
            "print(found.unknown)",
            "for head in found:",
            "    if head.best is not None:",
            "        print(head.best.score, head.best.control, head.best.sure)",
            "",
        ]
    )
    shown = [line for line in lines if line["score"] is not None]
    return Answer(
        data={
            "model": model,
            "share": 1.0,
            "done": True,
            "heads": lines,
            "unknown": found.unknown,
            "roles": [{"role": role, "short": SHORT.get(role, role), "n": roles[role]} for role in order],
            "least_spread": LEAST_SPREAD,
            "n_unknown": sum(line["role"] == UNKNOWN for line in lines),
            "effect": EFFECT,
            "sure": SURE,
            "left_out": list(found.left_out),
            "rows": found.row_labels,
            "columns": found.column_labels,
            "cells": found.cells,
        },
        arrays={"effect": torch.nan_to_num(values, nan=0.0), "there": (~values.isnan()).to(torch.uint8)},
        python=python,
        printed=(found.unknown, *(line[name] for line in shown for name in ("score", "control", "sure"))),
    )


def _line(head: Head) -> dict[str, Any]:
    best, rests = head.best, head.measures.get("first token")
    return {
        "name": head.name,
        "part": head.part,
        "layer": head.layer,
        "head": head.head,
        "address": f"{head.address}.pattern",
        "role": head.role,
        "short": SHORT.get(head.role, head.role),
        "score": None if best is None else best.score,
        "control": None if best is None else best.control,
        "effect": None if best is None else best.effect,
        "sure": None if best is None else best.sure,
        "spread": None if best is None else best.spread,
        "also": [{"role": name, "score": head.measures[name].score} for name in head.also],
        "rests": None if rests is None else rests.score,
        "entropy": head.looks.entropy,
        "distance": head.looks.distance,
        "copying": None if head.copying is None else head.copying.score,
    }
