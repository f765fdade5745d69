"""Runs of training: found below folders, read while they are written, and their weights looked at."""

from __future__ import annotations

import json
import os
import time
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError, UsageError
from clearhead.lens import look
from clearhead.studio import runs_of_training as runs
from clearhead.studio.models import Models
from clearhead.studio.run_folders import RunFolders
from clearhead.training.recipes.attention_only_2l import attention_only_2l
from clearhead.training.settings import plain
from clearhead.training.showing import Shown
from clearhead.training.watch import read_metrics
from tests.studio.snippets import assert_prints

SNAPSHOTS = [0, 50, 100]


def write(folder: Path, steps: range, *, held: int = 40) -> None:
    """Lines as `Watch` writes them."""
    with (folder / "metrics.jsonl").open("a") as file:
        for step in steps:
            values = {"step": step, "loss": 6 - step / 50, "lr": 0.001, "norm": 1.0, "tokens_per_second": 100.0}
            file.write(json.dumps(values) + "\n")
            if step % held == 0:
                file.write(json.dumps({"step": step, "held_out_loss": 6.5 - step / 60}) + "\n")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder with a run that goes on, beside what is none."""
    folder = tmp_path / "runs" / "Two Layers"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "metrics.jsonl").write_text("{}")
    (tmp_path / "runs" / "notes").mkdir()
    write(folder, range(10, 110, 10))
    for number in range(3):
        clearhead.save(clearhead.load(f"clear-2l@{5 * number:04}"), folder / "snapshots" / f"{number:04}")
    config = plain(attention_only_2l())
    config["every"]["snapshots"], config["run"]["steps"] = SNAPSHOTS, 200
    clearhead.save(clearhead.load("clear-2l"), folder / "step-000150")
    torch.save({"config": config, "optimiser": {"x": torch.zeros(4)}}, folder / "step-000150" / "training.pt")
    for step in (50, 100):
        Shown(f"given: <b>\nwritten: at {step}", b"", b"<svg xmlns='http://www.w3.org/2000/svg'/>").save(folder, step)
    return tmp_path / "runs"


@pytest.fixture
def studio(root: Path) -> Any:
    return SimpleNamespace(models=Models(runs=RunFolders([root])))


NAME = "two-layers"


def test_runs_are_found_and_named(root: Path, studio: Any) -> None:
    (line,) = runs.listed(studio).data["runs"]
    assert line["id"] == NAME and line["path"] == str(root / "Two Layers")
    assert (line["step"], line["steps"], line["state"]) == (100, 200, "going on")
    assert line["loss"] == 4.0 and line["held_out"] == pytest.approx(6.5 - 80 / 60)
    assert (line["kept"], line["samples"]) == (4, 2)


def test_a_folder_may_be_a_run_itself_and_stages_are_runs(root: Path) -> None:
    stage = root / "in-stages" / "first"
    stage.mkdir(parents=True)
    write(stage, range(10, 20, 10))
    found = {run.id for run in RunFolders([root, root / "Two Layers"]).all()}
    assert found == {NAME, "in-stages-first"}
    assert [run.id for run in RunFolders([root / "Two Layers"]).all()] == [NAME]


def test_names_stay_and_differ(root: Path) -> None:
    folders = RunFolders([root])
    assert [run.id for run in folders.all()] == [NAME]
    (root / "two layers").mkdir()
    write(root / "two layers", range(10, 20, 10))
    assert {run.id: run.path.name for run in folders.all()} == {NAME: "Two Layers", f"{NAME}-2": "two layers"}


def test_without_folders_there_is_nothing_to_read() -> None:
    nobody = SimpleNamespace(models=Models())
    assert runs.listed(nobody).data["runs"] == []
    with pytest.raises(UsageError, match="name its folder with --runs"):
        next(runs.watch(nobody, run="x"))


@pytest.mark.parametrize("name", ["..", "/etc", "two-layers/..", "Two Layers", "two-layers\0", "data", "notes"])
def test_a_name_is_never_a_path(studio: Any, name: str) -> None:
    for ask in (
        runs.sample,
        runs.pattern,
        lambda s, run: next(runs.watch(s, run=run)),
        lambda s, run: next(runs.heads(s, run=run)),
    ):
        with pytest.raises(UsageError, match="there is no run"):
            ask(studio, run=name)


# ---- while it goes on


def test_curves_are_the_lines_of_the_metrics(root: Path, studio: Any) -> None:
    answer = next(runs.watch(studio, run=NAME))
    assert answer is not None
    lines = read_metrics(root / "Two Layers")
    assert answer.arrays["step"].tolist() == [line["step"] for line in lines if "loss" in line]
    np.testing.assert_allclose(answer.arrays["loss"], [line["loss"] for line in lines if "loss" in line], rtol=1e-6)
    assert answer.arrays["held_step"].tolist() == [40, 80]
    assert answer.data["held_out"] == answer.data["best"] == {"step": 80, "loss": 6.5 - 80 / 60}
    assert answer.data["steps"] == 200 and answer.data["samples"] == [50, 100]
    assert [(one["name"], one["step"]) for one in answer.data["kept"]] == [
        ("snapshot-0000", 0), ("snapshot-0001", 50), ("snapshot-0002", 100), ("step-000150", 150),
    ]  # fmt: skip
    assert_prints(answer, least=2)


def test_a_watch_tells_of_what_is_new_and_of_nothing_else(
    root: Path, studio: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "PAUSE", 0.01)
    watch = runs.watch(studio, run=NAME)
    assert next(watch) is not None
    assert [next(watch) for _ in range(3)] == [None, None, None]
    write(root / "Two Layers", range(110, 130, 10))
    new = next(one for one in watch if one is not None)
    assert new.data["step"] == 120
    (root / "Two Layers" / "report.json").write_text(json.dumps({"held_out_loss": 2.5, "files": 3, "command": "x"}))
    last = [one for one in watch if one is not None]
    assert last[-1].data["state"] == "finished" and last[-1].data["measured"] == {"held_out_loss": 2.5, "files": 3}


def test_a_watch_ends_by_itself(studio: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "PAUSE", 0.01)
    monkeypatch.setattr(runs, "WATCHED", 0.1)
    assert len([one for one in runs.watch(studio, run=NAME) if one is not None]) == 1


def test_a_line_that_is_being_written_waits(root: Path, studio: Any) -> None:
    with (root / "Two Layers" / "metrics.jsonl").open("a") as file:
        file.write(
            'not json\n[1]\n{"step": "x"}\n{"step": 105, "loss": NaN, "lr": true, "norm": "x"}\n{"step": 110, "lo'
        )
    answer = next(runs.watch(studio, run=NAME))
    assert answer is not None and answer.data["step"] == 105 and answer.arrays["step"].tolist()[-1] == 100


def test_long_curves_are_thinned_and_keep_their_end(root: Path, studio: Any) -> None:
    write(root / "Two Layers", range(110, 40_000, 10))
    answer = next(runs.watch(studio, run=NAME))
    assert answer is not None
    assert answer.data["points"] > 3900 and len(answer.arrays["step"]) <= runs.POINTS + 1
    assert answer.arrays["step"][-1] == 39_990


def test_a_run_that_is_silent_has_stopped(root: Path, studio: Any) -> None:
    old = time.time() - 1000
    os.utime(root / "Two Layers" / "metrics.jsonl", (old, old))
    (line,) = runs.listed(studio).data["runs"]
    assert line["state"] == "stopped" and line["quiet"] == pytest.approx(1000, abs=20)


def test_samples(studio: Any, root: Path) -> None:
    last = runs.sample(studio, run=NAME)
    assert last.data["step"] == 100 and last.data["steps"] == [50, 100] and last.data["text"].startswith("given: <b>")
    assert last.data["picture"].startswith("data:image/svg+xml;base64,")
    assert runs.sample(studio, run=NAME, step=60).data["step"] == 50
    for path in (root / "Two Layers" / "samples").iterdir():
        path.unlink()
    assert runs.sample(studio, run=NAME).data["step"] is None


# ---- its heads


def test_heads_are_told_of_along_the_run(studio: Any, root: Path) -> None:
    answers = [one for one in runs.heads(studio, run=NAME) if one is not None]
    assert [len(one.data["kept"]) for one in answers] == [1, 2, 3, 4] and answers[0].data["of"] == 4
    again = [one for one in runs.heads(studio, run=NAME) if one is not None]
    assert [len(one.data["kept"]) for one in again] == [4]
    last = answers[-1]
    truth = clearhead.heads(clearhead.load("clear-2l"), shuffles=runs.SHUFFLES)
    assert [line["roles"][-1] for line in last.data["heads"]] == [head.role for head in truth]
    assert last.data["unknown"][-1] == truth.unknown
    induction = last.arrays["of induction"]
    assert induction.shape == (4, 8)
    np.testing.assert_allclose(induction[-1], [head.measures["induction"].score for head in truth], rtol=1e-6)
    assert induction[0].max() < 0.1 < induction[-1].max()
    by_role = {one["role"]: one["heads"] for one in last.data["by_role"][-1]}
    assert by_role["induction"] == [head.name for head in truth if head.role == "induction"]
    assert_prints(last, least=4)


def test_patterns_are_those_of_the_library(studio: Any, root: Path) -> None:
    answer = runs.pattern(studio, run=NAME, at="snapshot-0001", text="The cat sat. The cat", layer=1, head=2)
    model = clearhead.load(root / "Two Layers" / "snapshots" / "0001")
    ids = model.tokenizer.encode("The cat sat. The cat")
    seen = look(model, ids, "layers.*.mixer.pattern")
    assert answer.data["tokens"] == model.tokenizer.pieces(ids) and answer.data["step"] == 50
    torch.testing.assert_close(answer.arrays["pattern"], seen["layers.1.mixer.pattern"][0, 2])
    torch.testing.assert_close(answer.arrays["patterns"], torch.stack([one[0] for one in seen.values()]))
    assert_prints(answer, least=4)


def test_patterns_that_are_not_there(studio: Any) -> None:
    for wrong, why in (
        ({"at": "snapshot-0009"}, r"has no snapshot-0009 \(any more\)"),
        ({"layer": 2}, "2 layers with heads"),
        ({"head": 4}, "layer 0 of .* has 4 heads"),
    ):
        with pytest.raises(UsageError, match=why):
            runs.pattern(studio, run=NAME, **wrong)
    assert runs.pattern(studio, run=NAME, text="a" * 2000).data["cut"]


def test_weights_of_a_run_are_models_of_the_explorer(studio: Any, root: Path) -> None:
    models: Models = studio.models
    assert models.source(f"{NAME}@step-000150") == str(root / "Two Layers" / "step-000150")
    first = models.get(f"{NAME}@step-000150")
    assert models.get(f"{NAME}@step-000150") is first and models.about(f"{NAME}@step-000150")["layers"] == 2
    clearhead.save(clearhead.load("clear-2l@0000"), root / "Two Layers" / "step-000150")
    os.utime(root / "Two Layers" / "step-000150", (1, 1))
    again = models.get(f"{NAME}@step-000150")
    assert again is not first and not torch.equal(again.embed.tokens.weight, first.embed.tokens.weight)
    for wrong in (f"{NAME}@step-000151", f"{NAME}@", f"{NAME}@../step-000150", "other@step-000150", f"{NAME}@data"):
        with pytest.raises(UsageError):
            models.get(wrong)


def test_a_run_without_weights_or_without_heads_says_so(tmp_path: Path) -> None:
    write(tmp_path, range(10, 30, 10))
    studio = SimpleNamespace(models=Models(runs=RunFolders([tmp_path])))
    (run,) = studio.models.runs.all()
    (only,) = islice(runs.heads(studio, run=run.id), 2)
    assert only is not None and only.data["kept"] == []
    with pytest.raises(ClearheadError, match="kept no weights yet"):
        runs.pattern(studio, run=run.id)
