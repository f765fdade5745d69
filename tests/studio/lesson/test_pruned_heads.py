"""Chapters 3 and 4 on a model of the reader's own, whose layers have different numbers of heads; and what is kept."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import clearhead
import clearhead.studio.lesson.attention
import clearhead.studio.lesson.heads
from clearhead.claims.ingredients.sentences import SENTENCES
from clearhead.errors import UsageError
from clearhead.lens.pruning.prune import prune
from clearhead.studio.context import Studio
from clearhead.studio.lesson.drawing import DRAWING
from clearhead.studio.lesson.heads import by_hand, repeats
from clearhead.studio.models import Models
from clearhead.studio.operations import Answer, ask
from tests.studio.snippets import assert_prints


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """clear-2l without the three heads that matter least, in a folder whose name is no id."""
    text = "\n".join(SENTENCES[:10])
    smaller = prune(clearhead.load("clear-2l"), 3, by="gradient", text=text, held_out=text, max_tokens=64).model
    place = tmp_path_factory.mktemp("own") / "Fewer Heads"
    clearhead.save(smaller, place)
    return place


@pytest.fixture(scope="module")
def studio(folder: Path) -> Studio:
    return Studio(models=Models([str(folder)]), runs=None)  # type: ignore[arg-type]


def asked(studio: Studio, name: str, **args: object) -> Answer:
    answer = ask(studio, name, args)
    return answer if isinstance(answer, Answer) else list(answer)[-1]


def counts(studio: Studio) -> list[int]:
    return asked(studio, "attention.model", model=studio.models.named[0], head=0).data["heads_by_layer"]


def test_it_has_what_these_tests_are_about(studio: Studio, folder: Path) -> None:
    assert len(set(counts(studio))) == 2
    assert studio.models.named[0] != studio.models.source(studio.models.named[0]) == str(folder)


def test_every_head_that_is_left_is_shown(studio: Studio) -> None:
    id = studio.models.named[0]
    for layer, n_heads in enumerate(counts(studio)):
        for step in ("softmax", "mask"):
            answer = asked(studio, "attention.model", model=id, layer=layer, head=n_heads - 1, step=step)
            assert answer.data["heads"] == n_heads
            assert_prints(answer)
        with pytest.raises(UsageError, match=f"heads 0 to {n_heads - 1}"):
            asked(studio, "attention.model", model=id, layer=layer, head=n_heads)


def test_what_is_left_over_is_told_of_each_layer(studio: Studio) -> None:
    answer = asked(studio, "attention.leftover", model=studio.models.named[0])
    assert [sum(row) for row in answer.data["layers"]] == pytest.approx([1.0] * len(counts(studio)))
    assert answer.data["strongest"]["head"] < counts(studio)[answer.data["strongest"]["layer"]]
    assert_prints(answer)


def test_heads_look_back_in_each_layer(studio: Studio) -> None:
    answer = asked(studio, "heads.repeats", model=studio.models.named[0], off=2)
    assert answer.data["n_heads"] == counts(studio)
    there_LH = answer.arrays["there"]
    assert there_LH.shape == (len(counts(studio)), max(counts(studio)))
    for layer, n_heads in enumerate(counts(studio)):
        assert not there_LH[layer, n_heads:].any()
    best = answer.data["heads"][0]
    assert best["weight"] == pytest.approx(float(there_LH.max()))
    assert float(there_LH[best["layer"], best["head"]]) == pytest.approx(best["weight"])
    assert_prints(answer, least=2)


def test_roles_are_those_of_the_heads_that_are_left(studio: Studio) -> None:
    answer = asked(studio, "heads.roles", model=studio.models.named[0])
    rows = [[one["head"] for one in answer.data["heads"] if one["layer"] == layer] for layer in (0, 1)]
    assert rows == [list(range(n)) for n in counts(studio)]
    assert_prints(answer)


# ---- what is kept


def test_what_is_known_is_told_at_once_and_what_runs_a_model_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass is run from a generator, beside the few threads for what is short."""
    studio = Studio(models=Models(), runs=None)  # type: ignore[arg-type]
    # What other tests of this process asked is known too, but not of these weights.
    monkeypatch.setattr(studio.models, "stamp", lambda id: 2)
    for name, args in (
        ("attention.model", {"text": "A first look."}),
        ("attention.leftover", {"text": "A first look at it."}),
        ("heads.repeats", {"text": "One two one", "off": 1}),
        ("heads.cut", {"model": "clear-2l", "by": "random", "n": 5}),
    ):
        first = ask(studio, name, args)
        assert isinstance(first, Iterator), name
        told = list(first)[-1]
        second = ask(studio, name, args)
        assert isinstance(second, Answer), name
        assert second.printed == told.printed


def test_a_run_that_is_begun_anew_is_read_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    studio = Studio(models=Models(), runs=None)  # type: ignore[arg-type]
    args = {"model": "clear-2l", "text": "Three four three"}
    asked(studio, "heads.repeats", **args)
    assert isinstance(ask(studio, "heads.repeats", args), Answer)
    monkeypatch.setattr(studio.models, "stamp", lambda id: 1)
    assert isinstance(ask(studio, "heads.repeats", args), Iterator)


def test_roles_can_be_closed_in_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    studio = Studio(models=Models(), runs=None)  # type: ignore[arg-type]
    monkeypatch.setattr(studio.models, "stamp", lambda id: 3)
    answers = ask(studio, "heads.roles", {"model": "clear-gpt"})
    assert isinstance(answers, Iterator)
    assert next(answers).data["done"] < 1
    answers.close()  # type: ignore[attr-defined]
    assert studio.models._locks["clear-gpt"].acquire(blocking=False), "who has gone holds the model"


def test_weights_by_hand_are_drawn_by_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    held = []
    whole = by_hand.new_model

    def watched(*args: object) -> object:
        held.append(DRAWING._is_owned())  # type: ignore[attr-defined]
        return whole(*args)

    monkeypatch.setattr(by_hand, "new_model", watched)
    by_hand.model.__wrapped__()
    assert held == [True]


def test_the_ranking_of_heads_is_by_their_weight() -> None:
    model = clearhead.load("clear-2l")
    reading = repeats._read(model, "clear-2l", "One two three one two")
    weights = [weight for weight, _, _ in reading.heads]
    assert weights == sorted(weights, reverse=True)
    seen = clearhead.look(model, reading.ids, "layers.*.mixer.pattern")
    for weight, layer, head in reading.heads:
        there = seen[f"layers.{layer}.mixer.pattern"][0, head, -1, reading.where]
        assert torch.isclose(there, torch.tensor(weight), atol=1e-6)
