"""What `bench` says of a model: sizes by hand, limits of a made-up machine; nothing is about how fast this one is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead
from clearhead.costs.count import counts
from clearhead.errors import ClearheadError, UsageError
from clearhead.generation import bench
from clearhead.generation.bench import Machine, Pace, kind_of, measure_load, measure_paces
from tests import tiny

MACHINE = Machine(1, 1e9, {"float32": 1e9, "bfloat16": 4e9})


def made(family: str) -> Any:
    """A tiny random model of the peer's."""
    return tiny.make(family)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("llama")
    made("llama").save_pretrained(path)
    return path


def pace(**waits: float) -> Pace:
    return Pace("write 8 texts", 8, 2.0, 1e6, 1e6, {"memory": 0.0, "arithmetic": 0.0, "calls": 0.0, **waits})


def test_a_pace_beside_its_limit_by_hand() -> None:
    """8 tokens in 2 s, where memory alone would take 1 s: 4 a second of 8."""
    found = pace(memory=1.0, arithmetic=0.5, calls=0.25)
    assert (found.tokens_per_second, found.limit, found.share, found.bound_by) == (4.0, 8.0, 0.5, "memory")
    assert pace(memory=0.5, arithmetic=1.0).bound_by == "arithmetic"
    small = pace(memory=0.5, arithmetic=0.25, calls=1.0)
    assert (small.bound_by, small.limit) == ("calls", 16.0)  # calls are no limit of the machine


def test_a_decoder_reads_and_writes(folder: Path) -> None:
    model = clearhead.load(folder)
    told: list[str] = []
    read, one, eight = measure_paces(model, MACHINE, prompt=20, new=4, told=told.append)
    assert [p.name for p in (read, one, eight)] == ["read 1 x 20", "write 1 text", "write 8 texts"]
    assert told == ["reading 1 x 20 tokens", "writing 1 x 4 tokens", "writing 8 x 4 tokens"]
    assert (read.tokens, one.tokens, eight.tokens) == (20, 1, 8)
    of = counts(model.config)
    assert read.flops == of.flops(1, 20, last=1).needed
    assert model.head is not None
    assert model.embed.tokens is not None
    table = model.embed.tokens.weight.nbytes if model.head.weight is not None else 0
    weights = sum(p.nbytes for p in model.parameters()) - table
    assert one.bytes == pytest.approx(weights + of.state(1, 18, 4).total)
    assert one.waits["memory"] == pytest.approx(one.bytes / 1e9)
    assert eight.waits["arithmetic"] == pytest.approx(eight.flops / 1e9)
    assert all(p.seconds > 0 and p.waits["calls"] > 0 for p in (read, one, eight))
    assert not model._forward_hooks


def test_weights_count_as_they_are_held(folder: Path) -> None:
    wide, narrow = (measure_paces(clearhead.load(folder, dtype=d), MACHINE, new=4) for d in ("float32", "bfloat16"))
    assert narrow[1].bytes == pytest.approx(wide[1].bytes / 2, rel=0.01)
    assert narrow[1].waits["arithmetic"] == pytest.approx(wide[1].waits["arithmetic"] / 4)


def test_an_encoder_reads(tmp_path: Path) -> None:
    made("bert").save_pretrained(tmp_path)
    one, eight = measure_paces(clearhead.load(tmp_path), MACHINE, prompt=12)
    assert ([one.name, eight.name], eight.tokens) == (["read 1 x 12", "read 8 x 12"], 96)


def test_what_loading_took(folder: Path) -> None:
    model, found = measure_load(lambda: clearhead.load(folder, dtype="bfloat16"), str(folder))
    assert kind_of(model) == "bfloat16"
    assert found.weight_bytes == sum(p.nbytes for p in model.parameters())
    assert found.file_bytes == (folder / "model.safetensors").stat().st_size
    assert found.seconds > 0
    assert found.peak_bytes is None or found.peak_bytes >= 0


def test_tensors_made_of_others_count_with_theirs() -> None:
    class Outer:
        def __init__(self) -> None:
            self.a, self.b = torch.zeros(3, dtype=torch.int8), torch.zeros(2)

        def __tensor_flatten__(self) -> tuple[list[str], None]:
            return ["a", "b"], None

    assert bench._held(Outer()) == 3 + 8


def test_what_can_not_be_measured_is_refused(folder: Path, tmp_path: Path) -> None:
    model = clearhead.load(folder)
    context = model.config.context
    assert context is not None
    for prompt, new, said in ((0, 4, "at least"), (4, 2, "at least"), (context + 1, 4, f"beyond the {context}")):
        with pytest.raises(UsageError, match=said):
            measure_paces(model, MACHINE, prompt=prompt, new=new)
    with pytest.raises(UsageError, match=f"beyond the {context}"):
        measure_paces(model, MACHINE, prompt=4, new=context)
    for family in ("t5", "vit"):
        made(family).save_pretrained(tmp_path / family)
        with pytest.raises(ClearheadError, match=r"beside an encoder|reads something else"):
            measure_paces(clearhead.load(tmp_path / family), MACHINE)
