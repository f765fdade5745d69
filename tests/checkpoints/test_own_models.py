"""Models of this package by name: on folders made here, in the place of the package's."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import clearhead
from clearhead.checkpoints import open_checkpoint, own
from clearhead.errors import ClearheadError
from clearhead.families import FAMILIES
from clearhead.model.build import build

RAW = {"model_type": "attention_only", "hidden_size": 16, "num_attention_heads": 2, "vocab_size": 30}


def made(seed: int) -> clearhead.Transformer:
    torch.manual_seed(seed)
    model: clearhead.Transformer = build(FAMILIES["attention_only"].read(RAW, "here"))
    return model.to(torch.bfloat16)


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two models: `small` with three snapshots, of which the last is the model, and `plain` with none."""
    monkeypatch.setattr(own, "MODELS", tmp_path)
    monkeypatch.chdir(tmp_path.parent)
    for name in ("plain", "small"):
        clearhead.save(made(2), tmp_path / name, family="attention_only")
    inside = tmp_path / "small" / "snapshots"
    inside.mkdir()
    for number in range(2):
        clearhead.save(made(number), tmp_path / "whole", family="attention_only")
        (tmp_path / "whole" / "model.safetensors").rename(inside / f"{number:04}.safetensors")
        (tmp_path / "whole" / "config.json").unlink()
    return tmp_path


def weights(model: clearhead.Transformer) -> list[torch.Tensor]:
    return [p.detach().float() for p in model.parameters()]


@pytest.mark.parametrize(
    ("source", "seed"),
    [("plain", 2), ("small", 2), ("small@0002", 2), ("small@0001", 1), ("small@0000", 0)],
)
def test_a_name_and_a_snapshot_of_it(models: Path, source: str, seed: int) -> None:
    model = clearhead.load(source)
    assert all(map(torch.equal, weights(model), weights(made(seed))))


def test_what_is_stored_small_is_loaded_fast(models: Path) -> None:
    assert clearhead.load("small").dtype == clearhead.load("small@0000").dtype == torch.float32
    assert clearhead.load("small", dtype="bfloat16").dtype == torch.bfloat16
    assert clearhead.load(models / "small").dtype == torch.bfloat16  # a folder is as it is


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("small@0003", "there is no small@0003: the snapshots are 0000 to 0002"),
        ("small@3", "the snapshots are 0000 to 0002"),
        ("small@", "the snapshots are 0000 to 0002"),
        ("small@../0000", "the snapshots are 0000 to 0002"),
        ("plain@0000", "there is no plain@0000: the model has no snapshots"),
        ("smal", "Did you mean small?"),
    ],
)
def test_one_that_is_not_there(models: Path, source: str, words: str) -> None:
    with pytest.raises(ClearheadError) as refused:
        open_checkpoint(source)
    assert words in str(refused.value)


def test_a_folder_of_the_same_name_comes_first(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(models)
    assert clearhead.load("small").dtype == torch.bfloat16


def test_a_snapshot_saves_as_a_model_of_its_own(models: Path, tmp_path: Path) -> None:
    clearhead.save(clearhead.load("small@0001"), tmp_path / "out")
    assert all(map(torch.equal, weights(clearhead.load(tmp_path / "out")), weights(made(1))))
