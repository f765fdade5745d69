"""The claim that one decoder is prompted into several tasks."""

from __future__ import annotations

import pytest

from clearhead.claims.ingredients.tasks import TASKS, Task
from tests.claims.quick import verdict

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("gemma")]


def test_holds() -> None:
    assert verdict("prompted-tasks") == "holds"


def test_fails_without_a_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    """The item alone does not say what is wanted of it."""
    monkeypatch.setattr(Task, "few_shot", lambda self, item: f"{item} ->")
    assert verdict("prompted-tasks") == "does not hold"


def test_items_are_asked_once_and_answers_are_one_word() -> None:
    for name, task in TASKS.items():
        questions = [question for question, _ in task.items]
        assert len(questions) == len(set(questions)), name
        assert all(answer and " " not in answer for _, answer in task.items), name
