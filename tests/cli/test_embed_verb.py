"""`clearhead embed`: a file of lines to vectors, and the nearest of them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import clearhead
from clearhead.cli import main


@pytest.fixture
def lines(tmp_path: Path) -> Path:
    path = tmp_path / "lines.txt"
    path.write_text("one fish\n\ntwo fish, red fish\r\n" + "long " * 40 + "\nblue\n")
    return path


def test_vectors_in_a_file(tiny_folder, lines, tmp_path, capsys):
    out = tmp_path / "vectors.npy"
    assert main(["embed", str(tiny_folder), str(lines), "--out", str(out)]) == 0
    found = np.load(out)
    assert found.shape == (5, 32)
    assert found.dtype == np.float32
    assert np.allclose(np.linalg.norm(found, axis=1), [1, 0, 1, 1, 1])
    model = clearhead.load(tiny_folder)
    assert np.allclose(found[2], clearhead.embed(model, "two fish, red fish").numpy(), atol=1e-6)
    said = capsys.readouterr()
    assert "line 2: empty" in said.err
    assert "line 4: longer than 64 tokens" in said.err
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_search(tiny_folder, lines, capsys):
    assert main(["embed", str(tiny_folder), str(lines), "--search", "blue", "--top", "2"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert rows[0].split() == ["score", "line", "text"]
    assert rows[1].split() == ["1.0000", "5", "blue"]
    assert len(rows) == 3


def test_json(tiny_folder, lines, capsys):
    assert main(["embed", str(tiny_folder), str(lines), "--search", "blue", "--json", "--top", "9"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["lines"], said["width"], said["pooling"]) == (5, 32, "mean")
    assert (said["cut"], said["empty"]) == ([4], [2])
    assert len(said["found"]) == 4  # an empty line is never found
    assert said["found"][0] == {"line": 5, "score": pytest.approx(1.0), "text": "blue"}
    assert main(["embed", str(tiny_folder), str(lines), "--json"]) == 0
    vectors = torch.tensor(json.loads(capsys.readouterr().out)["vectors"])
    assert vectors.shape == (5, 32)


def test_from_standard_input(tiny_folder, stdin, capsys):
    stdin(b"red\nblue\n")
    assert main(["embed", str(tiny_folder), "-"]) == 0
    assert capsys.readouterr().out.startswith("2 lines, 32 numbers each")


@pytest.mark.parametrize(
    ("more", "code", "said"),
    [
        (["--top", "0"], 2, "--top is 0"),
        (["--out", "vectors.txt"], 2, "written as .npy"),
        (["--out", "/nowhere/vectors.npy"], 1, "there is no folder /nowhere"),
        (["--search", " "], 2, "--search is empty"),
        (["--pool", "head"], 1, "no pooled vector"),
    ],
)
def test_wrong_calls(tiny_folder, lines, more, code, said, capsys):
    assert main(["embed", str(tiny_folder), str(lines), *more]) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "said"), [(b"\n \n", "has no text in it"), (b"\xff\xfe", "not UTF-8"), (None, "No such file")]
)
def test_files_without_text(tiny_folder, tmp_path, data, said, capsys):
    path = tmp_path / "lines.txt"
    if data is not None:
        path.write_bytes(data)
    assert main(["embed", str(tiny_folder), str(path)]) == 1
    assert said in capsys.readouterr().err
