"""One Studio with the shipped models, for the tests of runs, tensors and the attention, shapes and picture views."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor

import clearhead
from clearhead.studio.context import Studio
from clearhead.studio.explore import attention, experts, parts, pictures, shapes, states  # noqa: F401 - register
from clearhead.studio.explore.given import Given
from clearhead.studio.explore.runs import Run, Runs
from clearhead.studio.models import Models
from clearhead.studio.operations import Answer, ask

TEXT = "The captain of the old ship looked out to sea, and the captain of the old"


@cache
def studio() -> Studio:
    torch.set_num_threads(1)
    models = Models()
    return Studio(models=models, runs=Runs(models))


def with_folder(folder: Any) -> tuple[Studio, str]:
    """A Studio with one more model, and the id that it has there."""
    models = Models([str(folder)])
    return Studio(models=models, runs=Runs(models)), models.named[0]


def made(model: str = "clear-gpt", **given: Any) -> Run:
    """A run of a shipped model."""
    capture = given.pop("capture", ())
    ablate = given.pop("ablate", ())
    return studio().runs.make(model, Given(**(given or {"text": TEXT})), capture=capture, ablate=ablate)


def answer(name: str, **args: Any) -> Answer:
    """What an operation answers."""
    return ask_in(studio(), name, **args)


def ask_in(own: Studio, name: str, **args: Any) -> Answer:
    """What an operation of one Studio answers: at once, or last."""
    found = ask(own, name, args)
    answer = found if isinstance(found, Answer) else list(found)[-1]
    assert answer is not None
    return answer


def looked(run: Run, *addresses: str) -> dict[str, Tensor]:
    """What `clearhead.look` sees in the same run."""
    model = clearhead.load(run.model)
    return dict(clearhead.look(model, run.inputs(model), *addresses, edits=run.edits(model)))
