"""One Studio for the tests of the explorer's views, and short ways to ask it."""

from __future__ import annotations

from functools import cache
from typing import Any

from clearhead.studio.context import Studio
from clearhead.studio.explore import ablate, compare, generate, heads, lens, patch, predict  # noqa: F401
from clearhead.studio.explore.ablations import Ablation
from clearhead.studio.explore.given import Given
from clearhead.studio.explore.runs import Runs
from clearhead.studio.models import Models
from clearhead.studio.operations import Answer, ask

CAT = "The cat sat on the mat because it was"
DOG = "The dog sat on the mat because it was"


@cache
def studio() -> Studio:
    models = Models()
    return Studio(models=models, runs=Runs(models))


def run_of(model: str = "clear-gpt", *, off: tuple[Ablation, ...] = (), **given: Any) -> str:
    """The id of a run."""
    return studio().runs.make(model, Given(**(given or {"text": CAT})), ablate=off).id


def asked(name: str, **args: Any) -> Answer:
    """The only answer, or the last of several."""
    found = ask(studio(), name, args)
    return found if isinstance(found, Answer) else [answer for answer in found if answer is not None][-1]


def all_of(name: str, **args: Any) -> list[Answer]:
    """Every answer of a long operation."""
    found = ask(studio(), name, args)
    assert not isinstance(found, Answer)
    return [answer for answer in found if answer is not None]
