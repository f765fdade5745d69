"""What each head of a real model does, layer by layer."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from clearhead.lens.heads import Heads, heads
from clearhead.lens.heads.table import SHORT
from clearhead.studio.operations import Answer, operation

if TYPE_CHECKING:
    from clearhead.studio.context import Studio

_found: dict[str, Heads] = {}


@operation("heads.roles")
def roles(studio: Studio, *, model: Annotated[str, Field(max_length=200)] = "clear-2l") -> Iterator[Answer]:
    """Every head's role, by `clearhead.heads`. While it is found out, answers say how far that is."""
    if model not in _found:
        net = studio.models.get(model)
        told: queue.Queue[float | None] = queue.Queue()
        outcome: dict[str, Any] = {}

        def work() -> None:
            try:
                with studio.models.lock(model):
                    outcome["heads"] = heads(net, progress=told.put)
            except Exception as error:
                outcome["error"] = error
            told.put(None)

        threading.Thread(target=work, daemon=True).start()
        while (share := told.get()) is not None:
            if told.empty():
                yield Answer(data={"model": model, "done": share})
        if "error" in outcome:
            raise outcome["error"]
        _found[model] = outcome["heads"]
    yield answer_of(model, _found[model])


def answer_of(model: str, found: Heads) -> Answer:
    """The table of layers by heads."""
    rows = [
        {
            "part": one.part,
            "layer": one.layer,
            "head": one.head,
            "role": one.role,
            "short": SHORT.get(one.role, one.role),
            "score": None if one.best is None else one.best.score,
            "control": None if one.best is None else one.best.control,
            "effect": 0.0 if one.best is None else one.best.effect,
            "entropy": one.looks.entropy,
            "distance": one.looks.distance,
        }
        for one in found
    ]
    counted: dict[str, int] = {}
    for one in found:
        counted[one.role] = counted.get(one.role, 0) + 1
    scored = [one for one in found if one.best is not None]
    return Answer(
        data={
            "model": model,
            "done": 1.0,
            "heads": rows,
            "rows": found.row_labels,
            "columns": found.column_labels,
            "counted": sorted(counted.items(), key=lambda item: -item[1]),
            "unknown": found.unknown,
        },
        python=(
            "import clearhead\n\n"
            f"model = clearhead.load({model!r})\n"
            "for head in clearhead.heads(model):\n"
            "    if head.best is not None:\n"
            "        print(head.best.score)\n"
        ),
        printed=tuple(one.best.score for one in scored if one.best is not None),
    )
