"""Runs of `clearhead train`, read as points for a law of scaling."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from clearhead.costs.runs import read_runs
from clearhead.errors import ClearheadError
from clearhead.training.config import DataConfig, DecoderConfig, EveryConfig, RunConfig
from clearhead.training.data.documents import Corpus
from clearhead.training.run import train
from tests.training.samples import tiny


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two sizes, trained for real: for 2 and for 3 steps of 4 rows of 12 tokens."""
    where = tmp_path_factory.mktemp("runs")
    (where / "texts").mkdir()
    lines = [f"the cat sat on mat {i} and saw dog {i % 7}" for i in range(40)]
    (where / "texts" / "t.txt").write_text("\n".join(lines) + "\n")
    corpus = Corpus(path=str(where / "texts" / "t.txt"), format="lines")
    base = tiny(data=DataConfig(corpus=corpus, tokenizer="bytes", held_out=0.2))
    assert isinstance(base.model, DecoderConfig)
    for name, width, steps in (("small", 8, 2), ("large", 16, 3)):
        config = replace(
            base,
            model=replace(base.model, d_model=width),
            run=RunConfig(steps=steps),
            every=EveryConfig(log=1, evaluate=0, save=0, held_out=0),
        )
        train(config, out=where / "all" / name, quiet=True)
    return where / "all"


def test_a_run_is_its_size_its_tokens_and_its_loss(folder: Path) -> None:
    large, small = read_runs(folder)
    assert (large.name, small.name) == ("large", "small")
    assert (large.tokens, small.tokens) == (3 * 4 * 12, 2 * 4 * 12)
    report = json.loads((folder / "large" / "report.json").read_text())
    assert large.loss == report["held_out_loss"]
    import clearhead

    model = clearhead.load(folder / "large" / "step-000003")
    assert large.parameters == sum(p.numel() for p in model.parameters()) > small.parameters


def changed(folder: Path, to: Path, name: str, **values: object) -> Path:
    """A copy of a run with another report."""
    import shutil

    shutil.copytree(folder / name, to / name)
    report = json.loads((to / name / "report.json").read_text())
    (to / name / "report.json").write_text(json.dumps({**report, **values}))
    return to


def test_runs_of_different_data_are_refused(folder: Path, tmp_path: Path) -> None:
    config = json.loads((folder / "small" / "report.json").read_text())["config"]
    changed(folder, tmp_path, "large")
    changed(folder, tmp_path, "small", config={**config, "data": {"other": 1}})
    with pytest.raises(ClearheadError, match=r"large and .*small are of different data"):
        read_runs(tmp_path)


def test_what_is_no_run_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ClearheadError, match="there is no folder"):
        read_runs(tmp_path / "nowhere")
    with pytest.raises(ClearheadError, match="no finished runs"):
        read_runs(tmp_path)
    changed(folder, tmp_path / "a", "small", held_out_loss=None)
    with pytest.raises(ClearheadError, match="no held_out_loss"):
        read_runs(tmp_path / "a")
    changed(folder, tmp_path / "b", "small", config={})
    with pytest.raises(ClearheadError, match="not a report of `clearhead train`"):
        read_runs(tmp_path / "b")
    changed(folder, tmp_path / "c", "small", held_out_loss_before=3.0)
    with pytest.raises(ClearheadError, match="began from nothing"):
        read_runs(tmp_path / "c")
    (tmp_path / "d").mkdir()
    (tmp_path / "d" / "report.json").write_text("[")
    with pytest.raises(ClearheadError, match="can't be read"):
        read_runs(tmp_path / "d")
