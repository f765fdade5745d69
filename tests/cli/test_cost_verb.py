"""The verb `clearhead cost`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from clearhead.cli import main
from clearhead.costs.cost import cost
from tests.costs.by_hand import SIZES


def told(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert main(["cost", *args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_what_must_be_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "llama3-70b", "--context", "8192"]) == 0
    out = capsys.readouterr().out
    for words in (
        "80 layers, 64 query heads on 8 key-value heads of 128",
        "327,680 bytes a token",
        "2.5 GiB",
        "40 GiB",
    ):
        assert words in out


def test_json_is_what_the_library_gives(capsys: pytest.CaptureFixture[str]) -> None:
    found = told(
        capsys, "llama3-8b", "--context", "1000", "--batch", "3", "--device", "h100-sxm", "--price-per-hour", "2"
    )
    again = cost("llama3-8b", context=1000, batch=3, device="h100-sxm", price_per_hour=2.0).to_json()
    assert found == json.loads(json.dumps(again))


def test_several_models(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["gpt2", "--compare", "llama3-8b", "mamba"]
    assert [one["model"] for one in told(capsys, *names)["models"]] == ["gpt2", "llama3-8b", "mamba"]
    assert main(["cost", *names, "--context", "512"]) == 0
    assert capsys.readouterr().out.splitlines()[0].split() == ["gpt2", "llama3-8b", "mamba"]


def test_a_plot(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["cost", "gpt2", "--plot", "context"]) == 0
    out = capsys.readouterr().out
    assert "Memory, bfloat16" in out and any(0x2800 < ord(char) < 0x2900 for char in out)
    path = tmp_path / "cost.svg"
    assert main(["cost", "gpt2", "--plot", "context", "--save", str(path)]) == 0
    assert path.read_text().startswith("<svg") and str(path) in capsys.readouterr().err


def test_a_budget(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", "--budget", "1e21"]) == 0
    out = capsys.readouterr().out
    assert "Kaplan 2020" in out and "Chinchilla 3, refitted" in out
    found = told(capsys, "gpt2", "--budget", "1e21")
    assert found["model"] == "gpt2" and len(found["allocations"]) == 5


def test_a_law_of_your_own(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Three sizes on as many tokens: a law of the size, its picture, and no plan for a budget."""
    for width, loss in ((8, 3.0), (16, 2.5), (32, 2.2)):
        run = tmp_path / f"width-{width}"
        (run / "step-000002").mkdir(parents=True)
        sizes = {**SIZES, "hidden_size": width}
        (run / "step-000002" / "config.json").write_text(json.dumps({"model_type": "llama", **sizes}))
        config = {"batch": {"rows": 4, "length": 12}, "data": "the same"}
        report = {"steps": 2, "checkpoint": "elsewhere/step-000002", "held_out_loss": loss, "config": config}
        (run / "report.json").write_text(json.dumps(report))
    assert main(["cost", "--runs", str(tmp_path)]) == 0
    assert "L(N) = (scale / N)^exponent: 3 runs" in capsys.readouterr().out
    found = told(capsys, "--runs", str(tmp_path), "--budget", "1e12")
    assert [run["tokens"] for run in found["runs"]] == [96, 96, 96] and len(found["allocations"]) == 5
    picture = tmp_path / "law.png"
    assert main(["cost", "--runs", str(tmp_path), "--plot", "context", "--save", str(picture)]) == 0
    assert picture.read_bytes()[1:4] == b"PNG"


@pytest.mark.parametrize(
    ("args", "words", "code"),
    [
        ([], "name a model", 2),
        (["gpt2", "--save", "a.svg"], "add --plot context", 2),
        (["gpt2", "--plot", "context", "--save", "a.pdf"], ".svg or .png", 2),
        (["gpt2", "--context", "-3"], "context is -3", 2),
        (["gpt2", "--context", "2000"], "made for texts of 1,024 tokens", 2),
        (["gpt2", "--device", "h1000"], "no device 'h1000'", 2),
        (["gpt2", "--memory", "-2"], "memory is -2 GiB", 2),
        (["gpt2", "--runs", "x"], "leave SOURCE out", 2),
        (["--budget", "-1"], "operations above 0", 2),
        (["--budget", "1e20", "--plot", "context"], "name one of them", 2),
        (["gtp2"], "Did you mean gpt2", 1),
        (["--runs", "nowhere"], "there is no folder nowhere", 1),
    ],
)
def test_what_is_wrong(args: list[str], words: str, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cost", *args]) == code
    err = capsys.readouterr().err
    assert words in err and len(err.splitlines()) == 1
