"""`clearhead bench`: a table with a bar a pass and the reason, or JSON; a busy machine is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from clearhead.cli import main
from clearhead.costs import busy
from clearhead.generation import bench
from clearhead.generation.bench import Machine

MACHINE = Machine(2, 3e10, {"float32": 4.65e11, "bfloat16": 9e11})


@pytest.fixture(autouse=True)
def _made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "measure_machine", lambda told: MACHINE)
    monkeypatch.setattr(busy, "foreign_load", lambda: 0.0)


def test_a_table_that_says_why(tiny_folder: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(tiny_folder), "--new", "4", "--dtype", "float32"]) == 0
    text = capsys.readouterr().out
    assert "This machine, 2 threads: memory 30 GB/s; products float32 465 GFLOP/s, bfloat16 900 GFLOP/s" in text
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    for name in ("read 1 x 64", "write 1 text", "write 8 texts"):
        assert "▒" in lines[name]  # so small a model waits for its calls
        assert f"{name}: bound by overhead: the calls of small operations take" in text
    assert "A pass waits for" in text


def test_json(tiny_folder: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", str(tiny_folder), "--new", "4", "--prompt", "10", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["machine"]["peaks"]["bfloat16"] == 9e11
    assert [pace["name"] for pace in found["paces"]] == ["read 1 x 10", "write 1 text", "write 8 texts"]
    for pace in found["paces"]:
        assert pace["bound_by"] in pace["waits"]
        assert pace["share"] == pytest.approx(pace["tokens_per_second"] / pace["limit"])
    assert found["loaded"]["weight_bytes"] > 0


def test_a_busy_machine_is_refused(
    tiny_folder: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(busy, "foreign_load", lambda: 0.5)
    assert main(["bench", str(tiny_folder)]) == 1
    assert "others use 50%" in (said := capsys.readouterr().err)
    assert "--force" in said
    assert main(["bench", str(tiny_folder), "--new", "4", "--force", "--json"]) == 0
    monkeypatch.setattr(busy, "foreign_load", lambda: None)  # a system that doesn't tell
    assert main(["bench", str(tiny_folder), "--new", "4", "--json"]) == 0


def test_wrong_calls(tiny_folder: Any, capsys: pytest.CaptureFixture[str]) -> None:
    for more, said in (
        (["--new", "1"], "at least"),
        (["--prompt", "65"], "beyond the 64"),
        (["--device", "x"], "cost"),
    ):
        assert main(["bench", str(tiny_folder), *more]) == 2
        assert said in capsys.readouterr().err
