"""A config, from whatever names a model; no weights are read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import clearhead
from clearhead.costs import counts
from clearhead.costs.source import config_names, read_config
from clearhead.errors import ClearheadError
from clearhead.families import FAMILIES
from clearhead.model.build import build
from tests.costs.by_hand import SIZES, config


def test_a_published_model_by_name() -> None:
    assert len(config_names()) >= 30
    found = read_config("llama3-70b")
    assert found.name == "llama3-70b" and len(found.config.stack.blocks) == 80


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_its_default(family: str) -> None:
    assert counts(read_config(family).config).parameters.total > 1e5


def test_a_model_and_a_config_are_what_they_are() -> None:
    made = config(**SIZES)
    with torch.device("meta"):
        model = build(made)
    assert read_config(made).config is made
    assert read_config(model).config == made
    with pytest.raises(ClearheadError, match="a int has no config"):
        read_config(3)


def test_a_config_json_needs_no_weights(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **SIZES}))
    for source in (tmp_path, tmp_path / "config.json", str(tmp_path)):
        assert read_config(source).config == config(**SIZES)


def test_a_checkpoint_is_read_without_its_weights() -> None:
    assert read_config("clear-2l").config == clearhead.load("clear-2l").config


def test_another_scaling_makes_it_longer() -> None:
    found = read_config("pythia-70m", {"rope_type": "yarn", "factor": 16.0})
    assert found.config.context == 16 * 2048
    assert read_config(config(**SIZES), {"rope_type": "linear", "factor": 2.0}).config.context == 16


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("lama3-70b", "llama3-70b"), ("gpt", "gpt2"), ("clear-3l", "clear-2l"), ("zzzzzz", "`clearhead families`")],
)
def test_what_is_unknown_is_refused_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(ClearheadError, match=f"no model '{name}'") as refused:
        read_config(name)
    assert nearest in str(refused.value)


def test_a_config_that_is_not_understood_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    for text, words in (
        ("{", "not JSON"),
        ("[1]", "no JSON object"),
        ('{"model_type": "lama"}', "not known"),
        ("{}", "no model_type"),
    ):
        path.write_text(text)
        with pytest.raises(ClearheadError, match=words):
            read_config(tmp_path)
    path.write_text(json.dumps({"model_type": "llama", **SIZES, "hiden_size": 3}))
    with pytest.raises(ClearheadError, match="hiden_size"):
        read_config(tmp_path)
    path.unlink()
    with pytest.raises(ClearheadError, match="can't be read"):
        read_config(tmp_path)


def test_a_name_on_the_hub_asks_for_its_config_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama", **SIZES}))
    asked = []

    def snapshot(repo: str, patterns: list[str], *rest: object) -> Path:
        asked.append((repo, patterns))
        return tmp_path

    monkeypatch.setattr("clearhead.checkpoints.hub._snapshot", snapshot)
    assert read_config("someone/model").config == config(**SIZES)
    assert asked == [("someone/model", ["config.json"])]
