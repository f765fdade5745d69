"""`clearhead train` and `clearhead evaluate`, on texts of a few words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clearhead.cli import main

TINY = """
    data.corpus.pattern=* data.tokenizer=bytes data.held_out=0.3
    model.d_model=16 model.n_layers=1 model.n_heads=2 model.n_kv_heads=1 model.d_ff=24
    batch.rows=2 batch.length=16 run.steps=3 every.log=1
""".split()


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    for i in range(8):
        (folder / f"{i}.txt").write_text("the cat sat on the mat " * (i + 1))
    return folder


def train(texts: Path, out: Path, *more: str) -> int:
    settings = [*TINY, f"data.corpus.path={texts}"]
    return main(["train", "gpt_stdlib", "--out", str(out), *(x for s in settings for x in ("--set", s)), *more])


def test_a_run_and_what_it_prints(texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(texts, tmp_path / "run") == 0
    said = capsys.readouterr()
    folder = tmp_path / "run" / "step-000003"
    assert said.out == f"{folder}\n"
    assert "step 3 of 3  loss " in said.err
    assert "xz bits per byte" in said.err
    report = json.loads((tmp_path / "run" / "report.json").read_text())
    assert report["steps"] == 3 and report["xz_bits_per_byte"] > 0

    assert main(["evaluate", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["bits_per_byte"] == pytest.approx(report["bits_per_byte"])
    assert found["n_bytes"] == report["n_bytes"] == sum(file["n_bytes"] for file in found["files"])
    assert main(["evaluate", str(folder), str(texts / "1.txt"), str(texts / "2.txt"), "--stride", "1"]) == 0
    printed = capsys.readouterr().out
    assert "bits per byte" in printed and "accuracy" in printed and "in 2 texts, by windows of 16 tokens" in printed
    assert main(["generate", str(folder), "the c", "--max-new-tokens", "4"]) == 0


def test_a_folder_with_a_run_is_gone_on_with_only_when_asked(
    texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(texts, tmp_path / "run", "--resume", "--json") == 0
    first = json.loads(capsys.readouterr().out)
    assert first["steps"] == 3 and first["stopped_by"] is None
    assert train(texts, tmp_path / "run") == 1
    assert "--resume" in capsys.readouterr().err
    assert train(texts, tmp_path / "run", "--resume", "--set", "run.steps=5") == 0
    said = capsys.readouterr()
    assert "going on from" in said.err and "run.steps is 5, and was 3" in said.err
    assert said.out == f"{tmp_path / 'run' / 'step-000005'}\n"
    assert train(texts, tmp_path / "run", "--resume", "--set", "model.n_layers=2") == 1
    assert "another model: model.n_layers is 2, and was 1" in capsys.readouterr().err


def test_show_prints_every_field_and_trains_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "gpt_stdlib", "--show", "--set", "optim.lr=0.5"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "optim.lr=0.5" in lines and "data.vocab_size=4096" in lines
    assert main(["train", "gpt_stdlib", "--show", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["vocab_size"] == 4096
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["train", "gpt_stdlb", "--show"], 2, "the nearest is gpt_stdlib"),
        (["train", "gpt_stdlib", "--set", "lr=1"], 2, "the nearest are optim.lr"),
        (["train", "gpt_stdlib", "--set", "data.corpus.path=/nowhere/at/all"], 1, "/nowhere/at/all"),
        (["train", "gpt_stdlib", "--set", "model.n_heads=5"], 1, "5 heads can't share"),
        (["train", "gpt_stdlib", "--set", "model.family=gtp2"], 1, "the nearest are"),
    ],
)
def test_what_makes_no_sense_is_one_line(
    args: list[str], code: int, said: str, texts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    quick = ["--set", f"data.corpus.path={texts}", "--set", "data.corpus.pattern=*", "--set", "data.tokenizer=bytes"]
    assert main([*args[:2], "--out", str(tmp_path / "run"), *quick, *args[2:]]) == code
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("clearhead: error: ") and said in error


def test_evaluate_needs_texts(tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(tiny_folder)]) == 2
    assert "name files to evaluate on" in capsys.readouterr().err
    assert main(["evaluate", str(tiny_folder), str(tmp_path / "gone.txt")]) == 1
    assert "gone.txt can't be read" in capsys.readouterr().err
