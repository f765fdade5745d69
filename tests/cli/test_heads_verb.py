"""`clearhead heads`: a line a head, all numbers as JSON, and a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clearhead.cli import heads
from clearhead.cli.options import parse
from clearhead.errors import ClearheadError, UsageError


def call(*args: str) -> None:
    heads.run(parse(heads.Options, "clearhead heads", "what heads do", args))


def test_a_line_a_head_and_a_picture(tiny_folder, capsys):
    call(str(tiny_folder), "--shuffles", "2")
    said = capsys.readouterr().out
    assert said.startswith("What each head does")
    for layer in range(2):
        for head in range(4):
            assert any(line.startswith(f"{layer}.{head} ") for line in said.splitlines())
    assert "% of 8 heads do nothing that was asked" in " ".join(said.split())
    assert "\x1b[" not in said


def test_json(tiny_folder, capsys):
    call(str(tiny_folder), "--json", "--shuffles", "2", "--composition")
    said = json.loads(capsys.readouterr().out)
    assert [(head["layer"], head["head"]) for head in said["heads"]] == [(n, h) for n in range(2) for h in range(4)]
    assert said["unknown"] == sum(head["role"] == "unknown" for head in said["heads"]) / 8
    first = said["heads"][0]
    assert first["address"] == "layers.0.mixer"
    induction = first["measures"]["induction"]
    assert induction["effect"] == pytest.approx(induction["score"] - induction["control"])
    assert -1 <= first["copying"]["score"] <= 1


def test_a_text_of_ones_own(tiny_folder, tmp_path, stdin, capsys):
    text = "one fish two fish\nred fish blue fish\n"
    (tmp_path / "text.txt").write_text(text)
    call(str(tiny_folder), "--text", str(tmp_path / "text.txt"), "--json", "--shuffles", "2")
    from_file = capsys.readouterr().out
    stdin(text.encode())
    call(str(tiny_folder), "--text", "-", "--json", "--shuffles", "2")
    assert capsys.readouterr().out == from_file
    call(str(tiny_folder), "--json", "--shuffles", "2")
    assert capsys.readouterr().out != from_file


def test_saved(tiny_folder, tmp_path, capsys):
    where = tmp_path / "heads.json"
    call(str(tiny_folder), "--save", str(where), "--json", "--shuffles", "2")
    said = capsys.readouterr()
    assert json.loads(where.read_text()) == json.loads(said.out)
    assert "wrote" in said.err
    call(str(tiny_folder), "--save", str(where.with_suffix(".svg")), "--shuffles", "2")
    assert "What each head does" in where.with_suffix(".svg").read_text()


@pytest.mark.parametrize(
    ("more", "kind", "words"),
    [
        (["--shuffles", "1"], UsageError, "--shuffles is 1"),
        (["--text", "/nowhere.txt"], ClearheadError, "can't be read"),
        (["--save", "heads.txt"], UsageError, "saved as"),
    ],
)
def test_wrong_calls(tiny_folder, more, kind, words):
    with pytest.raises(kind, match=words):
        call(str(tiny_folder), *more)


def test_a_model_without_attention_is_told_so(tmp_path: Path):
    from tests import tiny

    tiny.make("mamba").save_pretrained(tmp_path)
    with pytest.raises(ClearheadError, match="no attention layers"):
        call(str(tmp_path))
