"""Making a shipped model again: the run, the rounding, the card, on texts of a few words."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
import torch

import clearhead
from clearhead.checkpoints import own
from clearhead.errors import ClearheadError, UsageError
from clearhead.training import ship as shipping
from clearhead.training.card import curve
from clearhead.training.recipes import RECIPES
from clearhead.training.run import config_of
from clearhead.training.ship import SOURCES, main, ship
from tests.training.test_recipes import COMMON, TINY

SNAPSHOTS = "every.snapshots=[0, 1, 3]"


@pytest.fixture
def settings(tmp_path: Path) -> tuple[str, ...]:
    (tmp_path / "texts").mkdir()
    for i in range(16):
        (tmp_path / "texts" / f"{i}.txt").write_text("the whale and the sea " * (20 + i))
    return (*COMMON, *TINY["attention_only_2l"], f"data.corpus.path={tmp_path / 'texts'}", SNAPSHOTS)


def test_a_model_is_trained_rounded_and_described(
    settings: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "MODELS", tmp_path / "models")
    monkeypatch.setattr(shipping, "MODELS", tmp_path / "models")
    folder = ship("clear-2l", run=tmp_path / "run", settings=settings, quiet=True)
    assert folder == tmp_path / "models" / "clear-2l"
    found = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    assert found == [
        "README.md",
        "config.json",
        "loss.svg",
        "model.safetensors",
        "snapshots/0000.safetensors",
        "snapshots/0001.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    trained = clearhead.load(tmp_path / "run" / "step-000003")
    rounded = clearhead.load("clear-2l")
    for a, b in zip(trained.parameters(), rounded.parameters(), strict=True):
        assert torch.equal(a.to(torch.bfloat16).float(), b)
    first, second = clearhead.load("clear-2l@0000"), clearhead.load("clear-2l@0001")
    kept = clearhead.load(tmp_path / "run" / "snapshots" / "0001")
    assert torch.equal(kept.embed.tokens.weight.to(torch.bfloat16).float(), second.embed.tokens.weight)
    assert not torch.equal(first.embed.tokens.weight, second.embed.tokens.weight)

    said = (folder / "README.md").read_text()
    assert "clearhead train attention_only_2l --set " in said and "--set data.corpus.path=" in said
    assert "python -m clearhead.training.ship clear-2l" in said
    assert "SHA-256" in said and "public domain" in said
    assert "after 0, 1, 3 steps" in said and '"clear-2l@0000")` to `@0002`' in said
    assert "| bits per byte |" in said and "| as trained | as shipped |" in said
    assert "seed of the weights is 0" in said
    assert ET.parse(folder / "loss.svg").getroot().tag.endswith("svg")


def test_a_finished_run_is_not_run_again(settings: tuple[str, ...], tmp_path: Path) -> None:
    clearhead.train("attention_only_2l", settings=settings, out=tmp_path / "run", quiet=True)
    before = (tmp_path / "run" / "step-000003" / "model.safetensors").stat().st_mtime_ns
    folder = ship("clear-2l", run=tmp_path / "run", out=tmp_path / "out", settings=settings, quiet=True)
    assert folder == tmp_path / "out" / "clear-2l"
    assert (tmp_path / "run" / "step-000003" / "model.safetensors").stat().st_mtime_ns == before
    again = ship("clear-2l", run=tmp_path / "run", out=tmp_path / "out", settings=settings, quiet=True)
    assert again == folder and [path.name for path in (tmp_path / "out").iterdir()] == ["clear-2l"]


def test_a_run_of_another_recipe_is_refused(settings: tuple[str, ...], tmp_path: Path) -> None:
    other = (*settings, "optim.momentum=0.5")
    clearhead.train("attention_only_2l", settings=other, out=tmp_path / "run", quiet=True)
    with pytest.raises(ClearheadError, match=r"another run: optim.momentum is 0\.95"):
        ship("clear-2l", run=tmp_path / "run", out=tmp_path / "out", settings=settings, quiet=True)
    assert not (tmp_path / "out" / "clear-2l").exists()


def test_snapshots_end_with_the_model(settings: tuple[str, ...], tmp_path: Path) -> None:
    wrong = (*settings, "every.snapshots=[0, 2]")
    with pytest.raises(ClearheadError, match="the last snapshot is to be of the last step, 3, and not of 2"):
        ship("clear-2l", run=tmp_path / "run", out=tmp_path / "out", settings=wrong, quiet=True)
    assert not list((tmp_path / "out").iterdir())


def test_a_model_that_nobody_knows(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match=r"no model 'clear-gtp'.*clear-gpt"):
        ship("clear-gtp")
    assert main(["clear-gtp"]) == 2
    assert "clearhead: error: there is no model" in capsys.readouterr().err


@pytest.mark.parametrize("name", SOURCES)
def test_every_source_is_a_recipe_with_its_settings(name: str) -> None:
    source = SOURCES[name]
    assert source.recipe in RECIPES
    config = config_of(source.recipe, source.settings)
    steps = config.every.snapshots  # type: ignore[union-attr]
    assert len(steps) == (16 if name == "clear-2l" else 0)
    assert not steps or (steps[0] == 0 and steps[-1] == config.run.steps)  # type: ignore[union-attr]


def test_a_curve_has_a_point_a_line() -> None:
    lines = [{"step": 1, "loss": 4.0}, {"step": 2, "held_out_loss": 2.0}, {"step": 2, "loss": 3.0}]
    root = ET.fromstring(curve(lines))
    learnt, held = root.iter("{http://www.w3.org/2000/svg}polyline")
    ((_, high), (_, low)), ((end, lowest),) = (
        [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()] for line in (learnt, held)
    )
    assert high < low < lowest and end == float(learnt.attrib["points"].split()[-1].split(",")[0])
    assert root.find("{http://www.w3.org/2000/svg}style") is not None
    assert ET.fromstring(curve([])).tag.endswith("svg")
