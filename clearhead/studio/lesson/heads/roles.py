"""What each head of a real model does, layer by layer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from clearhead.lens.heads import Heads, heads
from clearhead.lens.heads.roles import UNKNOWN
from clearhead.lens.heads.table import SHORT
from clearhead.studio.explore.background import Working
from clearhead.studio.kept import KeptResults
from clearhead.studio.operations import Answer, operation

if TYPE_CHECKING:
    from clearhead.studio.context import Studio

_kept: KeptResults[Heads] = KeptResults(16)


@operation("heads.roles")
def roles(studio: Studio, *, model: Annotated[str, Field(max_length=200)] = "clear-2l") -> Iterator[Answer]:
    """Every head's role, by `clearhead.heads`. While it is found out, answers say how far that is."""
    key = _kept.key(studio.models, model)
    found = _kept.get(key)
    if found is None:
        net = studio.models.get(model)

        def measured(progress: Callable[[float], None]) -> Heads:
            # It runs in a thread of its own, which takes the lock itself, and gives it back where nobody waits.
            with studio.models.lock(model):
                return heads(net, progress=progress)

        working = Working(measured)
        for share in working.steps():
            yield Answer(data={"model": model, "done": min(share, 1.0)})
        found = _kept.put(key, working.result)
    yield answer_of(model, studio.models.source(model), found)


def answer_of(model: str, source: str, found: Heads) -> Answer:
    """The table of layers by heads, of which layers may have different numbers."""
    rows = [_row(one) for one in found]
    return Answer(
        data={
            "model": model,
            "done": 1.0,
            "heads": rows,
            "rows": found.row_labels,
            "columns": found.column_labels,
            "counted": Counter(one.role for one in found).most_common(),
            "unknown": found.unknown,
            "n_unknown": len(found.found(UNKNOWN)),
        },
        python=(
            "import clearhead\n\n"
            f"model = clearhead.load({source!r})\n"
            "for head in clearhead.heads(model):\n"
            "    if head.best is not None:\n"
            "        print(head.best.score)\n"
        ),
        printed=tuple(row["score"] for row in rows if row["score"] is not None),
    )


def _row(one: Any) -> dict[str, Any]:
    return {
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
