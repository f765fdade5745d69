"""Chapter 1: what its figures show is what the library gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import clearhead
from clearhead.errors import UsageError
from clearhead.recurrent import language_model
from clearhead.studio.context import Studio
from clearhead.studio.lesson.recurrence import lab, letters
from clearhead.studio.models import Models
from clearhead.studio.operations import Answer, ask
from tests.studio.snippets import assert_prints

STUDIO = Studio(models=Models(), runs=None)  # type: ignore[arg-type]


def asked(name: str, **args: object) -> Answer:
    found = ask(STUDIO, name, args)
    answer = found if isinstance(found, Answer) else list(found)[-1]
    assert isinstance(answer, Answer)
    return answer


@pytest.fixture
def quick_letters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A training of a few steps, kept in a folder of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(letters, "STEPS", 21)
    monkeypatch.setattr(letters, "ROWS", 4)
    monkeypatch.setattr(letters, "_TRAINED", {})
    return tmp_path


# ---- the agreement


@pytest.mark.parametrize("args", [{}, {"subject": 3, "between": 6, "noun": 2, "tense": "past"}])
def test_agreement_gives_the_models_own_chances(args: dict[str, object]) -> None:
    answer = asked("recurrence.agreement", **args)
    model = clearhead.load("clear-gpt")
    for cell in answer.data["cells"]:
        chances = torch.tensor(cell["chances"])
        with torch.inference_mode():
            logits_V = model(torch.tensor([model.tokenizer.encode(cell["start"])]))[0, -1]
        for verb, chance in zip(answer.data["verbs"], chances.tolist(), strict=True):
            id = model.tokenizer.encode(f" {verb}", bos=False)[0]
            assert chance == pytest.approx(float(logits_V.softmax(-1)[id]), rel=1e-5)
        assert cell["right"] == cell["chances"][cell["plural"]]
    assert answer.data["n_right"] == sum(cell["agrees"] for cell in answer.data["cells"])
    assert_prints(answer)


def test_agreement_crosses_both_numbers() -> None:
    starts = [cell["start"] for cell in asked("recurrence.agreement").data["cells"]]
    assert starts == [
        "The keys to the cabinet",
        "The keys to the cabinets",
        "The key to the cabinet",
        "The key to the cabinets",
    ]


def test_agreement_says_how_to_install_what_is_missing() -> None:
    models = Models()
    models.missing["gemma3-270m"] = "gemma"
    studio = Studio(models=models, runs=None)  # type: ignore[arg-type]
    (answer,) = ask(studio, "recurrence.agreement", {"model": "gemma3-270m"})  # type: ignore[misc]
    assert isinstance(answer, Answer)
    assert answer.data["missing"] == 'pip install "clearhead[gemma]"'


# ---- factors


@pytest.mark.parametrize(("factor", "steps"), [(0.9, 30), (0.9, 40), (1.1, 100), (1.0, 7), (0.5, 1)])
def test_factor_is_its_power(factor: float, steps: int) -> None:
    answer = asked("recurrence.gradient", factor=factor, steps=steps)
    assert answer.data["left"]["factor"] == pytest.approx(factor**steps, rel=1e-4)
    assert all(curve.shape == (101,) for curve in answer.arrays.values())
    assert_prints(answer)


def test_the_lessons_three_powers() -> None:
    lefts = [example["left"] for example in asked("recurrence.gradient").data["examples"]]
    assert lefts == pytest.approx([0.0424, 0.0148, 13_781], rel=1e-2)


def test_gradients_of_networks_are_ordered_as_told() -> None:
    left = asked("recurrence.gradient", steps=50).data["left"]
    assert left["RNN"] < 1e-3 * left["LSTM"] < 1e-5
    assert 0.3 < left["attention"] < 3


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"first": 1.5, "second": 0.5, "turn": 90, "steps": 40},
        {"first": 0.8, "second": 0.8, "turn": 0, "steps": 25},
    ],
)
def test_matrix_never_leaves_more_than_its_bound(args: dict[str, float]) -> None:
    answer = asked("recurrence.matrix", **args)
    data, w_FF = answer.data, torch.tensor(answer.data["rows"], dtype=torch.float64)
    assert data["largest"] == pytest.approx(float(torch.linalg.svdvals(w_FF)[0]))
    assert data["largest"] == pytest.approx(max(args.get("first", 1.2), args.get("second", 0.7)), rel=1e-5)
    assert bool((torch.as_tensor(answer.arrays["left"]) <= torch.as_tensor(answer.arrays["bound"]) + 1e-9).all())
    assert_prints(answer)


def test_a_matrix_of_one_singular_value_reaches_its_bound() -> None:
    data = asked("recurrence.matrix", first=0.8, second=0.8, turn=30, steps=20).data
    assert data["left"] == pytest.approx(0.8**20, rel=1e-4)


# ---- paths and steps


@pytest.mark.parametrize("distance", [1, 7])
def test_paths(distance: int) -> None:
    answer = asked("recurrence.paths", distance=distance)
    assert (answer.data["RNN"], answer.data["attention"]) == (distance, 1)
    assert_prints(answer)


def test_waiting_grows_with_the_text_in_recurrence_alone() -> None:
    answer = asked("recurrence.waiting", tokens=300)
    assert answer.data["steps"] == {"RNN": 600, "LSTM": 600, "transformer": 2}
    short, long = answer.data["chains"]
    assert short["transformer"] == long["transformer"]
    assert long["RNN"] > short["RNN"]
    assert_prints(answer)


# ---- the lab


def test_training_tells_its_steps_and_is_kept(quick_letters: Path) -> None:
    answers = list(ask(STUDIO, "recurrence.train", {"cell": "simple"}))  # type: ignore[arg-type]
    assert [answer.data["done"] for answer in answers] == [0, 10, 20, 21]
    assert answers[-1].data["ready"]
    (file,) = (quick_letters / "clearhead" / "studio").iterdir()
    letters._TRAINED.clear()
    assert [a.data["ready"] for a in ask(STUDIO, "recurrence.train", {"cell": "simple"})] == [True]  # type: ignore[union-attr]
    file.write_bytes(b"broken")
    letters._TRAINED.clear()
    letters.trained("simple")
    assert file.stat().st_size > 1000, "a file that can't be read is made anew"


def test_training_ends_where_nobody_listens(quick_letters: Path) -> None:
    stream = ask(STUDIO, "recurrence.train", {"cell": "gru"})
    next(stream)  # type: ignore[call-overload]
    stream.close()  # type: ignore[union-attr]
    assert letters._TRAINING.acquire(timeout=20), "the training has ended, or will do so at its next step"
    letters._TRAINING.release()
    assert not letters.is_trained("gru")


@pytest.mark.parametrize(
    ("cell", "text", "step"), [("lstm", "The keys to the cabinet", 5), ("gru", "7 naïve cats", 11), ("simple", "a", 9)]
)
def test_lab_shows_the_networks_own_vectors(quick_letters: Path, cell: str, text: str, step: int) -> None:
    answer = asked("recurrence.lab", cell=cell, text=text, step=step)
    n, step = len(text), min(step, len(text) - 1)
    assert answer.arrays["hidden"].shape == (n, letters.UNITS)
    assert ("cell" in answer.arrays) == (cell == "lstm")
    assert len(answer.data["gates"]) == {"lstm": 4, "gru": 3, "simple": 0}[cell]
    with torch.inference_mode():
        chances_V = letters.trained(cell)(torch.tensor([letters.ids_of(text)]))[0, step].softmax(-1)  # type: ignore[arg-type]
    assert [best["chance"] for best in answer.data["best"]] == pytest.approx(
        chances_V.topk(5).values.tolist(), rel=1e-5
    )
    assert_prints(answer)


def test_the_first_letter_is_all_there_is_of_it_at_the_start(quick_letters: Path) -> None:
    """Where only the first letter was read, changing it changes the vector; and what it changed fades."""
    answer = asked("recurrence.lab", cell="simple", text="The keys to the cabinet are")
    left = torch.as_tensor(answer.arrays["left"])
    assert left[0] > 0.1
    assert left[-1] < 0.1 * left[0]


def test_every_gate_has_a_name() -> None:
    from clearhead.ops.recurrence import GATES

    assert {letter for cell in ("lstm", "gru", "simple") for letter in GATES[cell]} <= set(lab.NAMES)
    assert language_model("lstm", vocab_size=letters.SYMBOLS, d_model=letters.UNITS).d_model == letters.UNITS


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("recurrence.gradient", {"factor": 2}),
        ("recurrence.lab", {"text": ""}),
        ("recurrence.lab", {"text": "x" * 161}),
        ("recurrence.lab", {"cell": "../../etc"}),
        ("recurrence.agreement", {"model": "/etc/passwd"}),
    ],
)
def test_what_is_out_of_range_is_refused(name: str, args: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        asked(name, **args)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("recurrence.gradient", {"factor": 0.8, "steps": 12}),
        ("recurrence.matrix", {"steps": 3}),
        ("recurrence.paths", {"distance": 2}),
        ("recurrence.waiting", {"tokens": 9}),
    ],
)
def test_an_answer_says_what_was_asked(name: str, args: dict[str, object]) -> None:
    """The page takes it from there: its controls may have moved on since."""
    data = asked(name, **args).data
    assert {key: data[key] for key in args} == args
