"""The diagram of a model, and what stands at each of its taps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError
from clearhead.studio.explore.given import Given
from clearhead.taps import catalogue
from tests.studio.explore.opened import answer, ask_in, looked, made, with_folder
from tests.studio.snippets import assert_prints

MODELS = ("clear-gpt", "clear-bert", "clear-translate", "clear-vit", "clear-speech", "clear-2l")


def taps_of(found: Any) -> list[str]:
    """Every tap that is drawn somewhere."""
    boxes = [*found["ends"]]
    for stack in found["stacks"]:
        boxes += [
            stack,
            stack["embed"],
            *stack["blocks"],
            *(part for block in stack["blocks"] for part in block["parts"]),
        ]
    return [tap["address"] for box in boxes for tap in box["taps"]]


@pytest.mark.parametrize("name", MODELS)
def test_every_parameter_and_every_tap_is_in_it(name: str) -> None:
    found = answer("explore.shapes", model=name)
    model = clearhead.load(name)
    assert sorted(taps_of(found.data)) == sorted(catalogue(model))
    assert found.data["parameters"] == sum(p.numel() for p in model.parameters())
    for stack in found.data["stacks"]:
        parts = stack["embed"]["parameters"] + sum(block["parameters"] for block in stack["blocks"])
        relative = 0 if stack["norm"] is None else stack["norm"]["parameters"]
        assert parts + relative == stack["parameters"]
        for block in stack["blocks"]:
            assert sum(part["parameters"] for part in block["parts"]) == block["parameters"]
    assert_prints(found)


TAPS = [
    ("clear-gpt", {}, "layers.1.mixer.scores", {"head": 2}),
    ("clear-gpt", {}, "layers.1.mixer.k", {"head": 1}),
    ("clear-gpt", {}, "layers.2.resid_post", {}),
    ("clear-gpt", {}, "embed.front", {}),
    ("clear-gpt", {}, "logits", {}),
    ("clear-translate", {"source": "de: forty-seven"}, "layers.0.cross.pattern", {"head": 3}),
    ("clear-translate", {"source": "de: forty-seven"}, "encoder.layers.1.ffn.post", {}),
    ("clear-vit", {"picture": "bag"}, "layers.0.mixer.z", {"head": 0}),
]


@pytest.mark.parametrize(("name", "given", "address", "part"), TAPS)
def test_a_tap(name: str, given: dict[str, str], address: str, part: dict[str, int]) -> None:
    run = made(name, **given)
    found = answer("explore.tap", run=run.id, address=address, **part)
    value = looked(run, address)[address][0]
    map_TX = value[part["head"]] if "head" in part else value
    assert torch.equal(found.arrays["map"], map_TX[:1024, :1024])
    assert found.data["shape"] == list(value.shape) and found.data["map_shape"] == list(map_TX.shape)
    finite = value[value.isfinite()].double()
    assert found.data["mean"] == pytest.approx(float(finite.mean()), abs=1e-9)
    assert found.data["std"] == pytest.approx(float(finite.std(unbiased=False)), abs=1e-9)
    assert (found.data["least"], found.data["most"]) == (float(finite.min()), float(finite.max()))
    assert found.data["masked"] == int((value == -torch.inf).sum())
    assert found.data["cut"] == (max(map_TX.shape) > 1024)
    assert_prints(found)


@pytest.mark.parametrize(
    "where", [{"address": "layers.0.mixer.q", "head": 4}, {"address": "layers.0.nothing"}, {"address": "*"}]
)
def test_a_tap_that_is_not_there(where: dict[str, object]) -> None:
    with pytest.raises((ClearheadError, ValueError)):
        answer("explore.tap", run=made().id, **where)


def test_every_cell_can_be_looked_at() -> None:
    """The feed-forward of clear-gpt and its logits are wider than one map."""
    run = made()
    for address, col in (("layers.0.ffn.post", 900), ("logits", 3000), ("logits", 10_000_000)):
        found = answer("explore.tap", run=run.id, address=address, row=5, col=col)
        value = looked(run, address)[address][0]
        at = found.data["from"]
        assert at == [0, max(0, min(col, value.shape[1] - 1024))]
        assert torch.equal(found.arrays["map"], value[:, at[1] : at[1] + 1024].float())
        assert found.data["map_shape"] == list(value.shape)
        assert_prints(found)


def test_the_copied_code_names_the_source(tmp_path: Path) -> None:
    clearhead.save(clearhead.load("clear-2l"), tmp_path / "a model")
    own, name = with_folder(tmp_path / "a model")
    assert name == "a-model"
    run = own.runs.make(name, Given(text="one two"))
    for found in (ask_in(own, "explore.shapes", model=name), ask_in(own, "explore.tap", run=run.id, address="final")):
        assert repr(str(tmp_path / "a model")) in found.python
        assert_prints(found)
