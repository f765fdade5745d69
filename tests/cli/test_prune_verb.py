"""`clearhead prune`: a smaller folder, what it costs, and the curve."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import clearhead
from clearhead.cli import main


@pytest.fixture
def texts(tmp_path: Path) -> list[str]:
    files = [tmp_path / name for name in ("ranked.txt", "checked.txt")]
    files[0].write_text("it was the best of times, it was the worst of times\n" * 20)
    files[1].write_text("it was the age of wisdom, it was the age of foolishness\n" * 20)
    return [str(file) for file in files]


def test_a_smaller_folder_is_written(
    tiny_folder: Path, texts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "smaller"
    flags = ["--heads", "25%", "--text", texts[0], "--held-out", texts[1], "--tokens", "500"]
    assert main(["prune", str(tiny_folder), str(folder), *flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["heads"] == {"cut": 2, "of": 8}
    # Two query heads, with the key-value head they share or with one from each: d_model 32, heads of 8.
    assert found["parameters"]["removed"] in ((2 + 1 + 1 + 2) * 32 * 8, (2 + 2) * 32 * 8)
    model = clearhead.load(folder)
    assert sum(p.numel() for p in model.parameters()) == found["parameters"]["after"]
    assert found["files"]["model.safetensors"] < (tiny_folder / "model.safetensors").stat().st_size
    assert "tokenizer.json" in found["files"]
    assert set(found["loss"]) == {"before", "after"}

    assert main(["prune", str(tiny_folder), str(tmp_path / "again"), *flags]) == 0
    out = capsys.readouterr().out
    assert "heads       8 to 6" in out
    assert f"{found['loss']['before']:.4f} to {found['loss']['after']:.4f}" in out
    assert main(["inspect", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["parameters"] == found["parameters"]["after"]


def test_heads_can_be_counted_and_ranked_otherwise(
    tiny_folder: Path, texts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for by in ("ablation", "random"):
        flags = ["--heads", "4", "--by", by, "--text", texts[0], "--tokens", "300", "--json"]
        assert main(["prune", str(tiny_folder), str(tmp_path / by), *flags]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["by"] == by
        assert found["heads"]["cut"] == 4


def test_the_curve_is_a_table(tiny_folder: Path, texts: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--curve", "--text", texts[0], "--tokens", "200"]
    assert main(["prune", str(tiny_folder), *flags, "--json"]) == 0
    curve = json.loads(capsys.readouterr().out)["curve"]
    assert curve["row_labels"] == ["gradient", "ablation", "random"]
    assert len(curve["values"]) == 3
    assert len(curve["values"][0]) == len(curve["column_labels"]) == 7
    assert main(["prune", str(tiny_folder), *flags]) == 0
    out = capsys.readouterr().out
    assert "ablation" in out
    assert f"{curve['values'][0][2]:.4f}" in out


@pytest.mark.parametrize(
    ("flags", "code", "problem"),
    [
        ([], 2, "name a folder"),
        (["{new}"], 2, "go together"),
        (["--heads", "25%"], 2, "name a folder"),
        (["{new}", "--heads", "many"], 2, "25%, or a whole number"),
        (["{new}", "--heads", "0"], 2, "can't be cut off"),
        (["{new}", "--heads", "90%"], 2, "at most 6 can go"),
        (["{new}", "--heads", "100%"], 2, "can't be cut off"),
        (["{new}", "--heads", "2", "--held-out", "x.txt"], 2, "goes with --text"),
        (["{new}", "--heads", "2", "--text", "nowhere.txt"], 1, "nowhere.txt can't be read"),
        (["{old}", "--heads", "2"], 1, "not an empty folder"),
    ],
)
def test_wrong_calls_write_nothing(
    flags: list[str], code: int, problem: str, tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new = tmp_path / "new"
    places = {"{new}": str(new), "{old}": str(tiny_folder)}
    assert main(["prune", str(tiny_folder), *(places.get(flag, flag) for flag in flags)]) == code
    assert problem in capsys.readouterr().err
    assert not new.exists()
