"""Load then save keeps every byte, and what was saved is the same model in `transformers`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import clearhead
from tests import tiny
from tests.families.figures import note
from tests.families.pairs import Pair, worst
from tests.oracles import TOLERANCE

F32 = TOLERANCE[torch.float32]

every = pytest.mark.parametrize("pair", tiny.cases(), indirect=True, ids="-".join)


def config_of(folder: Path) -> dict[str, object]:
    return json.loads((folder / "config.json").read_text())


@every
def test_load_then_save_keeps_every_byte(pair: Pair) -> None:
    before, after = (load_file(folder / "model.safetensors") for folder in (pair.folder, pair.saved))
    assert sorted(before) == sorted(after)
    for name in before:
        assert before[name].dtype == after[name].dtype, name
        assert torch.equal(before[name], after[name]), name
    assert config_of(pair.saved) == config_of(pair.folder)


@every
def test_the_saved_folder_loads_in_transformers(pair: Pair) -> None:
    again = type(pair.theirs).from_pretrained(pair.saved).eval()
    there = pair.expected(pair.inputs, pair.whole[0], again)
    for name, value in pair.whole[1].items():
        assert torch.equal(there[name], value), name


@every
def test_a_config_written_from_nothing_is_read_alike(pair: Pair, tmp_path: Path) -> None:
    """Without the original config to carry along, what is written alone gives the same model, there and here."""
    bare = clearhead.load(pair.folder)
    family = bare.origin.family
    assert family.read(family.write(bare.config, {}), "written") == bare.config
    bare.origin = None
    clearhead.save(bare, tmp_path / "bare", family=family.model_type)
    again = type(pair.theirs).from_pretrained(tmp_path / "bare").eval()
    found = worst(pair.expected(pair.inputs, pair.whole[0], again), pair.whole[1])
    note(pair.family, "output", found)
    assert found <= F32
