"""Recipes of several runs, and a model that learns from another."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead
from clearhead.config import record
from clearhead.errors import ClearheadError, UsageError
from clearhead.training.config import (
    DecoderConfig,
    ObjectiveConfig,
    RunConfig,
    Stages,
    StartConfig,
    TeacherConfig,
    TrainConfig,
)
from clearhead.training.objectives import Distil, NextToken, from_config, of_data
from clearhead.training.recipes import recipe
from clearhead.training.run import train
from clearhead.training.settings import change
from clearhead.training.start import load_teacher
from tests.training.samples import same
from tests.training.starts import from_nothing, trained


@record
class Two(Stages):
    """One run, and another from its model."""

    first: TrainConfig
    second: TrainConfig


def two(folder: Path, **start: Any) -> Two:
    first = from_nothing(folder)
    return Two(first=first, second=replace(first, model=StartConfig(source="stage:first", **start)))


def test_stages_follow_one_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    done = train(two(tmp_path), settings=("second.run.steps=2",), out=tmp_path / "run")
    said = capsys.readouterr().err
    assert "stage 1 of 2: first" in said and "stage 2 of 2: second" in said
    assert said.splitlines()[-2].startswith("first: held out loss ")
    assert said.splitlines()[-1].startswith("second: held out loss before ")
    assert done.report is not None and [*done.report] == ["first", "second"]
    assert done.report["second"]["held_out_loss_before"] == done.report["first"]["held_out_loss"]
    assert done.report["second"]["held_out_loss"] < done.report["first"]["held_out_loss"]
    assert done.checkpoint == tmp_path / "run" / "second" / "step-000002"
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == ["data", "first", "second"]
    with pytest.raises(ClearheadError, match="--resume"):
        train(two(tmp_path), out=tmp_path / "run", quiet=True)


def test_stages_go_on_where_they_were_stopped(tmp_path: Path) -> None:
    straight = train(two(tmp_path), out=tmp_path / "straight", quiet=True)
    part = train(two(tmp_path).first, out=tmp_path / "parts" / "first", quiet=True)
    resumed = train(two(tmp_path), out=tmp_path / "parts", resume=True, quiet=True)
    assert part.steps == 3
    assert same(dict(straight.model.named_parameters()), dict(resumed.model.named_parameters()))


def test_a_stage_that_is_stopped_is_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import signal

    from clearhead.training.trainer import Trainer

    step = Trainer.step

    def stopping(trainer: Trainer) -> Any:
        done = step(trainer)
        signal.raise_signal(signal.SIGTERM)
        return done

    monkeypatch.setattr(Trainer, "step", stopping)
    done = train(two(tmp_path), out=tmp_path / "run", quiet=True)
    assert (done.steps, done.report, done.stopped_by) == (1, None, signal.SIGTERM)
    assert not (tmp_path / "run" / "second").exists()


@pytest.mark.parametrize("name", ["gqa_uptrain", "distil"])
def test_recipes_of_stages_are_shown_and_set_by_stage(name: str) -> None:
    made = recipe(name)
    assert isinstance(made, Stages)
    last = [*vars(made)][-1]
    assert getattr(change(made, (f"{last}.run.steps=7",)), last).run.steps == 7
    with pytest.raises(UsageError, match=rf"no setting 'run\.steps'; the nearest are .*{last}\.run\.steps"):
        change(made, ("run.steps=7",))


def test_grouped_heads_come_after_a_twentieth_of_the_steps() -> None:
    made = recipe("gqa_uptrain")
    assert made.grouped.run.steps == made.whole.run.steps / 20
    assert made.grouped.model.source == "stage:whole" and made.grouped.model.n_kv_heads < made.whole.model.n_kv_heads


def test_students_differ_in_their_teacher_alone() -> None:
    made = recipe("distil")
    assert replace(made.taught, objective=ObjectiveConfig()) == made.alone
    assert made.teacher.data == made.alone.data


# ---- learning from another


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teacher")
    trained(from_nothing(folder, run=RunConfig(steps=20)), folder / "base")
    return folder


def taught(teacher: Path, **changes: Any) -> TrainConfig:
    config = from_nothing(teacher, **changes)
    small = DecoderConfig(family="llama", d_model=8, n_layers=1, n_heads=2, n_kv_heads=2, d_ff=12)
    told = TeacherConfig(source=str(teacher / "base"), temperature=1.5, weight=0.75)
    return replace(config, model=small, objective=ObjectiveConfig(teacher=told))


def test_a_teacher_is_learnt_from_and_the_data_alone_is_measured(teacher: Path, tmp_path: Path) -> None:
    done = trained(taught(teacher), tmp_path / "run")
    assert done.report is not None and done.checkpoint is not None
    again = trained(replace(taught(teacher), objective=ObjectiveConfig()), tmp_path / "alone")
    assert again.report is not None
    lines = [[json.loads(one) for one in (tmp_path / name / "metrics.jsonl").open()] for name in ("run", "alone")]
    # From the same weights and on the same batch, but with the teacher's part in the loss.
    assert lines[0][0]["loss"] != pytest.approx(lines[1][0]["loss"], rel=1e-3)
    from clearhead.training.prepare import prepare
    from clearhead.training.trainer import Trainer

    batches = prepare(taught(teacher), tmp_path / "run", quiet=True).batches
    held = Trainer(taught(teacher), done.model, NextToken(), batches).held_out()
    assert done.report["held_out_loss"] == pytest.approx(held["held_out_loss"], rel=1e-6)


def test_a_config_makes_the_objective_with_its_teacher(teacher: Path) -> None:
    config = taught(teacher).objective
    student = clearhead.load(teacher / "base" / "step-000020")
    loaded = load_teacher(config.teacher, student)
    made = from_config(config, loaded)
    assert made == Distil(teacher=loaded, of=NextToken(), temperature=1.5, weight=0.75)
    assert of_data(made) == NextToken() and of_data(NextToken()) == NextToken()
    assert not any(p.requires_grad for p in loaded.parameters())
    with pytest.raises(ClearheadError, match=r"objective\.name is regress"):
        from_config(replace(config, name="regress"), loaded)


def test_a_teacher_of_another_vocabulary_is_refused(teacher: Path, tmp_path: Path) -> None:
    config = taught(teacher)
    words = replace(config, data=replace(config.data, tokenizer="bpe", vocab_size=270))
    with pytest.raises(ClearheadError, match=r"objective\.teacher\.source: .* has another vocabulary .* is token"):
        trained(words, tmp_path / "run")


def test_a_teacher_that_has_changed_is_refused(teacher: Path, tmp_path: Path) -> None:
    clearhead.save(clearhead.load(teacher / "base" / "step-000020"), tmp_path / "model")
    config = taught(teacher)
    objective = ObjectiveConfig(teacher=TeacherConfig(source=str(tmp_path / "model")))
    config = replace(config, objective=objective)
    trained(config, tmp_path / "run")
    model = clearhead.load(tmp_path / "model")
    with torch.no_grad():
        model.norm.weight.add_(1.0)
    clearhead.save(model, tmp_path / "model")
    with pytest.raises(ClearheadError, match=r"began from another model: objective\.teacher\.source"):
        trained(replace(config, run=RunConfig(steps=4)), tmp_path / "run", resume=True)
