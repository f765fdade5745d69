"""Results that are kept: for the weights they were made with, the last few, made once, and without their model."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pytest
import torch
from torch import nn

import clearhead
from clearhead.errors import UsageError
from clearhead.studio.kept import KeptResults
from clearhead.studio.models import Models


class Stamped:
    """Models whose weights are written when a test says so."""

    def __init__(self) -> None:
        self.sources, self.stamps, self.loads = {"a": "folder/a", "b": "folder/b"}, {"a": 1, "b": 1}, 0
        self.mutex = threading.RLock()

    def source(self, id: str) -> str:
        if id not in self.sources:
            raise UsageError(f"there is no model {id}")
        return self.sources[id]

    def stamp(self, id: str) -> int:
        return self.stamps[id]

    def lock(self, id: str) -> threading.RLock:
        return self.mutex

    def get(self, id: str) -> str:
        self.loads += 1
        return f"{id} as of {self.stamps[id]}"


def shout(model: Any) -> str:
    return str(model).upper()


def told(text: str, model: Any) -> str:
    return f"{model}: {text}"


@pytest.fixture
def models() -> Any:
    return Stamped()


def test_a_result_is_made_once_for_a_model_and_a_question(models: Any) -> None:
    kept: KeptResults[str] = KeptResults(8)
    for _ in range(3):
        for id in ("a", "b"):
            for text in ("one", "two"):
                assert kept.of(models, id, text, make=partial(told, text)) == f"{id} as of 1: {text}"
    assert models.loads == 4 == len(kept)


def test_weights_that_were_written_anew_are_asked_anew(models: Any) -> None:
    kept: KeptResults[str] = KeptResults(8)
    assert kept.of(models, "a", make=shout) == "A AS OF 1"
    models.stamps["a"] = 2
    assert kept.of(models, "a", make=shout) == "A AS OF 2"
    assert kept.get(kept.key(models, "b")) is None


def test_what_is_written_while_a_result_is_made_is_not_taken_for_it(models: Any) -> None:
    kept: KeptResults[str] = KeptResults(8)

    def make(model: Any) -> str:
        models.stamps["a"] = 2
        return f"from {model}"

    assert kept.of(models, "a", make=make) == "from a as of 1"
    assert kept.of(models, "a", make=shout) == "A AS OF 2"


def test_two_studios_may_call_different_folders_the_same(models: Any) -> None:
    other = cast(Any, Stamped())
    other.sources["a"] = "elsewhere/a"
    kept: KeptResults[str] = KeptResults(8)
    kept.put(kept.key(models, "a"), "here")
    assert kept.get(kept.key(other, "a")) is None
    assert kept.get(kept.key(Stamped(), "a")) == "here"  # type: ignore[arg-type]


def test_what_was_not_used_for_longest_goes(models: Any) -> None:
    kept: KeptResults[str] = KeptResults(2)
    keys = [kept.key(models, "a", n) for n in range(3)]
    kept.put(keys[0], "zero")
    kept.put(keys[1], "one")
    assert kept.get(keys[0]) == "zero"
    kept.put(keys[2], "two")
    assert [kept.get(key) for key in keys] == ["zero", None, "two"] and len(kept) == 2


def test_of_many_that_ask_at_once_one_computes(models: Any) -> None:
    kept: KeptResults[list[int]] = KeptResults(8)
    made: list[int] = []

    def make(model: Any) -> list[int]:
        time.sleep(0.02)
        made.append(1)
        return [len(made)]

    found: list[list[int]] = []
    threads = [threading.Thread(target=lambda: found.append(kept.of(models, "a", make=make))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1] and len(found) == 8 and all(one is found[0] for one in found)


def test_nothing_is_kept_of_what_fails_or_is_not_there(models: Any) -> None:
    kept: KeptResults[str] = KeptResults(8)

    def fails(model: Any) -> str:
        raise UsageError("no text")

    with pytest.raises(UsageError, match="no text"):
        kept.of(models, "a", make=fails)
    with pytest.raises(UsageError, match="no model"):
        kept.of(models, "nobody", make=shout)
    assert len(kept) == 0 and kept.of(models, "a", make=shout) == "A AS OF 1"


@dataclass
class Record:
    inside: Any


@pytest.mark.parametrize(
    "wrap",
    [
        lambda module: module,
        lambda module: [1, (2, module)],
        lambda module: {"layers": {module: 1}},
        lambda module: Record(Record([module])),
        lambda module: {frozenset({module})},
    ],
)
def test_a_model_or_a_part_of_one_is_refused(models: Any, wrap: Any) -> None:
    kept: KeptResults[Any] = KeptResults(8)
    with pytest.raises(TypeError, match="holds a Linear"):
        kept.put(kept.key(models, "a"), wrap(nn.Linear(2, 2)))
    assert len(kept) == 0


def test_what_a_look_saw_may_be_kept_and_what_runs_in_circles_too() -> None:
    studio_models = Models()
    kept: KeptResults[Any] = KeptResults(8)
    seen = kept.of(studio_models, "clear-2l", make=lambda model: clearhead.look(model, "A few words", "*.pattern"))
    assert seen is kept.of(studio_models, "clear-2l", make=lambda model: None)
    assert torch.is_tensor(seen["layers.0.mixer.pattern"])
    circle: list[Any] = []
    circle.append(circle)
    assert kept.put(kept.key(studio_models, "clear-2l", "circle"), circle) is circle
