"""The lab of chapter 1: a recurrent network steps through the reader's sentence, letter by letter."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Annotated, Any

import torch
from pydantic import Field

from clearhead.lens import look
from clearhead.ops.recurrence import GATES, HAS_CELL
from clearhead.studio.lesson.recurrence import letters
from clearhead.studio.lesson.recurrence.letters import Cell, first_changed, ids_of, printable, trained
from clearhead.studio.operations import Answer, operation

LONGEST, BEST = 160, 5
EVERY = 10
"""So many steps of a training from one answer to the next."""
NAMES = {
    "i": "input gate",
    "f": "forget gate",
    "g": "what is written",
    "o": "output gate",
    "r": "reset gate",
    "z": "update gate",
    "n": "new state",
}

PYTHON = """\
from unicodedata import name

from clearhead import look
from clearhead.studio.lesson.recurrence.letters import first_changed, ids_of, trained

model = trained({cell!r})  # takes some seconds the first time
text, step = {text!r}, {step}
site = "layers.0.mixer.hidden"
seen = look(model, ids_of(text), site)
best = seen.output[0, step].softmax(-1).topk({best})
for chance, letter in zip(best.values.tolist(), best.indices.tolist()):
    print(name(chr(letter), "something else"), chance)

# How much of the first letter is left: change it, and see how far the hidden vector moves.
here = seen[site][0, step]
there = look(model, ids_of(first_changed(text)), site)[site][0, step]
print("left of the first letter:", float((here - there).norm() / here.norm()))
"""


@operation("recurrence.train")
def train(*, cell: Cell = "lstm") -> Iterator[Answer]:
    """Make the network ready, and tell how its loss falls where it has to be trained first."""
    if not letters.is_trained(cell):
        yield from _training(cell)
    trained(cell)
    yield Answer(data={"cell": cell, "ready": True, "done": letters.STEPS, "of": letters.STEPS})


def _training(cell: Cell) -> Iterator[Answer]:
    """Train beside, and yield what is told of it; it ends where nobody listens any more."""
    told: queue.SimpleQueue[tuple[int, float] | Exception | None] = queue.SimpleQueue()
    left = threading.Event()

    def seen(step: int, loss: float) -> None:
        if left.is_set():
            raise _Left
        if step % EVERY == 0:
            told.put((step, loss))

    def run() -> None:
        try:
            trained(cell, seen)
            told.put(None)
        except Exception as problem:
            told.put(problem)

    threading.Thread(target=run, name="letters", daemon=True).start()
    try:
        while (one := told.get()) is not None:
            if isinstance(one, Exception):
                raise one
            step, loss = one
            yield Answer(data={"cell": cell, "ready": False, "done": step, "of": letters.STEPS, "loss": loss})
    finally:
        left.set()


class _Left(Exception):
    """Nobody listens."""


@operation("recurrence.lab")
def lab(
    *,
    cell: Cell = "lstm",
    text: Annotated[str, Field(min_length=1, max_length=LONGEST)] = "The keys to the cabinet are on the table.",
    step: Annotated[int, Field(ge=0, lt=LONGEST)] = 0,
) -> Iterator[Answer]:
    """The hidden vector, the cell and the gates after every letter, what the network expects next there, and how much
    of the first letter is left in it.
    """
    model = trained(cell)
    ids = ids_of(text)
    step = min(step, len(ids) - 1)
    sites = {"hidden": "layers.0.mixer.hidden"}
    if cell in HAS_CELL:
        sites["cell"] = "layers.0.mixer.cell"
    if GATES[cell]:
        sites["gates"] = "layers.0.mixer.gates"
    seen = look(model, ids, *sites.values())
    changed = look(model, ids_of(first_changed(text)), sites["hidden"])
    hidden_TF = seen[sites["hidden"]][0]
    moved_T, length_T = (hidden_TF - changed[sites["hidden"]][0]).norm(dim=-1), hidden_TF.norm(dim=-1)
    left_T = moved_T / length_T
    scores_TV = seen.output[0]
    chances_TV = scores_TV.softmax(-1)
    best = chances_TV.topk(BEST)
    given_T = chances_TV[:-1].gather(-1, torch.tensor(ids)[1:, None])[:, 0]
    data: dict[str, Any] = {
        "cell": cell,
        "text": text,
        "step": step,
        "letters": printable(ids),
        "changed": first_changed(text)[0],
        "best": [
            {"letter": chr(i), "chance": c, "score": float(scores_TV[step, i])}
            for i, c in _pairs(best.indices[step], best.values[step])
        ],
        "log_sum": float(scores_TV[step].logsumexp(-1)),
        "next_score": float(scores_TV[step, ids[step + 1]]) if step + 1 < len(ids) else None,
        "moved": float(moved_T[step]),
        "length": float(length_T[step]),
        "left": float(left_T[step]),
        "next": chr(ids[step + 1]) if step + 1 < len(ids) else None,
        "next_chance": float(given_T[step]) if step + 1 < len(ids) else None,
        "gates": [{"letter": letter, "name": NAMES[letter]} for letter in GATES[cell]],
        "units": letters.UNITS,
        "read": len(letters.english()),
        "training_steps": letters.STEPS,
    }
    yield Answer(
        data=data,
        arrays={
            **{name: seen[site][0] for name, site in sites.items()},
            "left": left_T,
            "moved": moved_T,
            "length": length_T,
            "given": given_T,
            "best": best.values,
            "best_letters": best.indices.int(),
        },
        python=PYTHON.format(cell=cell, text=text, step=step, best=BEST),
        printed=(*best.values[step].tolist(), float(left_T[step])),
    )


def _pairs(indices: torch.Tensor, values: torch.Tensor) -> list[tuple[int, float]]:
    return list(zip(indices.tolist(), values.tolist(), strict=True))
