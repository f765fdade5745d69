"""`clearhead look`: each view is what the library gives, and flags that do not go together are told before any work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import clearhead
from clearhead.cli import main
from clearhead.lens.logit_lens import logit_lens
from tests.lens.pages import Page

MODEL, TEXT = "clear-2l", "the keys to the cabinet"


@pytest.fixture(scope="module")
def model() -> clearhead.Transformer:
    return clearhead.load(MODEL)


@pytest.mark.parametrize(("flags", "layers"), [([], [0, 1]), (["--layer", "1"], [1])])
def test_grid_is_every_head_that_look_sees(
    flags: list[str],
    layers: list[int],
    model: clearhead.Transformer,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    seen = clearhead.look(model, TEXT)
    args = ["look", MODEL, TEXT, "--view", "grid", *flags]
    assert main([*args, "--json", "--save", str(tmp_path / "grid.html")]) == 0
    said = json.loads(capsys.readouterr().out)
    assert [layer["name"] for layer in said["layers"]] == [f"layers.{layer}.mixer" for layer in layers]
    for layer, shown in zip(layers, said["layers"], strict=True):
        assert torch.equal(torch.tensor(shown["pattern"]), seen[f"layers.{layer}.mixer.pattern"][0])
    heads = seen["layers.0.mixer.pattern"].shape[1]
    assert len(Page((tmp_path / "grid.html").read_text()).data["maps"]) == heads * len(layers)
    assert main(args) == 0
    assert "layers.1.mixer" in capsys.readouterr().out


def test_links_has_all_layers_and_begins_with_the_one_asked_for(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    args = ["look", MODEL, TEXT, "--view", "links", "--layer", "1", "--head", "2"]
    assert main([*args, "--save", str(tmp_path / "links.html")]) == 0
    out = capsys.readouterr().out
    assert "layers.1.mixer, head 2" in out
    assert "head 1" not in out
    data = Page((tmp_path / "links.html").read_text()).data
    assert (len(data["rows"]), data["chosen"], data["heads"]) == (2, 1, [2])


def test_lens_is_the_logit_lens(
    model: clearhead.Transformer, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = logit_lens(model, TEXT)
    assert main(["look", MODEL, TEXT, "--view", "lens", "--save", str(tmp_path / "lens.html")]) == 0
    out = capsys.readouterr().out
    assert "embedding" in out
    assert found.cells[-1][-1] in out
    data = Page((tmp_path / "lens.html").read_text()).data
    assert torch.equal(torch.tensor(data["values"]), found.values)
    assert data["words"] == found.cells


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--view", "lens", "--layer", "1"], "every layer"),
        (["--view", "grid", "--layer", "1", "--head", "0"], "every head"),
        (["--view", "links", "--head", "0"], "--layer"),
        (["--contacts", "--view", "grid"], "all layers"),
    ],
)
def test_flags_that_do_not_go_together(flags: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["look", "no-such-model", TEXT, *flags]) == 2
    assert words in capsys.readouterr().err
