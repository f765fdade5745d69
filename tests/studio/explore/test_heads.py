"""The table of heads: as `clearhead.heads` measures it, once a model, and let go of when nobody waits."""

from __future__ import annotations

import threading
import time

import pytest

import clearhead
from clearhead.studio.explore import heads as module
from clearhead.studio.explore.background import Working
from clearhead.studio.kept import KeptResults
from clearhead.studio.operations import ask
from tests.studio.explore.asking import all_of, studio
from tests.studio.snippets import assert_prints


def test_the_table_is_that_of_the_library_and_is_kept() -> None:
    module._kept = KeptResults(16)
    answers = all_of("explore.heads", model="clear-2l")
    last = answers[-1]
    expected = clearhead.heads(studio().models.get("clear-2l"))
    assert [line["role"] for line in last.data["heads"]] == [head.role for head in expected]
    assert [line["score"] for line in last.data["heads"]] == [
        None if head.best is None else pytest.approx(head.best.score, abs=1e-6) for head in expected
    ]
    assert last.data["unknown"] == expected.unknown
    assert sum(role["n"] for role in last.data["roles"]) == len(expected)
    assert all(not answer.data["done"] for answer in answers[:-1])
    assert len(all_of("explore.heads", model="clear-2l")) == 1
    assert_prints(last, least=4)


def test_a_run_that_is_begun_anew_is_measured_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    all_of("explore.heads", model="clear-2l")
    monkeypatch.setattr(studio().models, "stamp", lambda id: 7)
    assert len(all_of("explore.heads", model="clear-2l")) > 1


def test_work_ends_when_nobody_waits() -> None:
    seen: list[float] = []

    def work(progress: object) -> int:
        for step in range(1000):
            seen.append(step)
            progress(step / 1000)  # type: ignore[operator]
            time.sleep(0.002)
        return 1

    steps = Working(work).steps()
    next(steps)
    steps.close()  # type: ignore[attr-defined]
    assert len(seen) < 900
    assert not any(thread.name == "studio work" for thread in threading.enumerate())


def test_what_the_work_raises_comes_out() -> None:
    def work(progress: object) -> int:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        list(Working(work).steps())


def test_a_closed_measurement_is_not_kept() -> None:
    module._kept = KeptResults(16)
    answers = ask(studio(), "explore.heads", {"model": "clear-2l"})
    next(answers)  # type: ignore[call-overload]
    answers.close()  # type: ignore[union-attr]
    assert len(module._kept) == 0
