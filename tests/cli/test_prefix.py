"""`clearhead generate --prefix FILE`, with a real model whose tokens are bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clearhead.cli import main

LONG = ["--max-new-tokens", "4"]


def answer(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, object]:
    assert main(["generate", *args, *LONG, "--json"]) == 0, capsys.readouterr().err
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_the_text_is_read_once(tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, file = str(tiny_folder), str(tmp_path / "doc.prefix")
    whole = answer(capsys, model, "Once upon a time")
    assert "cached_tokens" not in whole
    made = answer(capsys, model, " a time", "--prefix", file, "--prefix-text", "Once upon")
    # The first of the tokens begins the text; the last one of the prefix is read with what follows.
    assert made == {**whole, "cached_tokens": 9, "logprobs": pytest.approx(whole["logprobs"], abs=1e-4)}
    again = answer(capsys, model, " a time", "--prefix", file)
    assert (again["tokens"], again["prompt"], again["cached_tokens"]) == (whole["tokens"], "Once upon a time", 9)
    longer = answer(capsys, model, "time", "--prefix", file, "--prefix-text", "Once upon a ")
    assert (longer["tokens"], longer["cached_tokens"]) == (whole["tokens"], 12)
    assert main(["generate", model, "time", "--prefix", file, *LONG]) == 0
    assert capsys.readouterr().out == f"{whole['text']}\n"


def test_what_can_not_be(tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, file = str(tiny_folder), tmp_path / "doc.prefix"

    def refused(code: int, *args: str) -> str:
        assert main(["generate", model, "p", *LONG, *args]) == code
        error = capsys.readouterr().err
        assert error.startswith("clearhead: error: ")
        return error

    assert "give --prefix FILE" in refused(2, "--prefix-text", "Once")
    assert "--prefix-text TEXT" in refused(2, "--prefix", str(file))
    assert not file.exists()
    answer(capsys, model, "p", "--prefix", str(file), "--prefix-text", "Once upon")
    assert "holds another text, which begins 'Once upon'" in refused(2, "--prefix", str(file), "--prefix-text", "Twice")
    file.write_bytes(file.read_bytes()[:-7])
    assert "cut short" in refused(1, "--prefix", str(file))
    (tmp_path / "folder").mkdir()
    assert "folder" in refused(1, "--prefix", str(tmp_path / "folder"))
