"""Attention rollout against the paper's recursion, written out."""

from __future__ import annotations

import pytest
import torch

from clearhead.errors import ClearheadError
from clearhead.lens import look
from clearhead.lens.rollout import rollout
from tests import tiny
from tests.families.pairs import make_pair
from tests.oracles import TOLERANCE, error

F32 = TOLERANCE[torch.float32]
CASES = [
    ("bert", "masked", ""),
    ("llama", "grouped", ""),
    ("gpt_oss", "alternating", ""),
    ("vit", "classifier", ""),
    ("t5", "plain", "encoder"),
    ("t5", "plain", ""),
    ("deepseek_v3", "latent", ""),
    ("clip", None, "image"),
]


def of(family: str, name: str | None, folder):
    return make_pair(family, name or next(iter(tiny.families()[family][0].configs)), folder)


@pytest.mark.parametrize(("family", "name", "part"), CASES)
def test_rows_sum_to_one_and_follow_the_recursion(family, name, part, tmp_path):
    pair = of(family, name, tmp_path)
    given = pair.inputs.given()
    stack = getattr(pair.ours, part) if part else pair.ours
    addresses = [f"{block.mixer.path}.pattern" for block in stack.layers]
    patterns = look(pair.ours, given, *addresses)
    found = rollout(pair.ours, given, part=part, row=1)
    n = patterns[addresses[0]].shape[-1]
    expected = [[float(i == j) for j in range(n)] for i in range(n)]
    for address in addresses:
        mean = patterns[address][1].double().mean(0).tolist()
        mixed = []
        for i in range(n):
            row = [mean[i][j] + float(i == j) for j in range(n)]
            total = sum(row)
            mixed.append([sum(row[m] / total * expected[m][j] for m in range(n)) for j in range(n)])
        expected = mixed
    assert error(found.values, torch.tensor(expected).double()) <= F32
    assert error(found.values.sum(-1), torch.ones(n).double()) <= TOLERANCE[torch.float64]
    assert len(found.row_labels) == len(found.column_labels) == n
    assert found.layers_LTS.shape == (len(stack.layers), n, n)
    assert torch.equal(found.layers_LTS[-1], found.values)


def test_a_decoder_brings_nothing_from_what_comes_later(model):
    found = rollout(model, "keys")
    assert not found.values.triu(1).any()
    assert found.row_labels == look(model, "keys").labels()
    for heads in ("max", "min"):
        assert error(rollout(model, "keys", heads=heads).values.sum(-1), torch.ones(5).double()) <= 1e-12


def test_a_picture_is_named_by_row_and_column(tmp_path):
    pair = of("vit", "classifier", tmp_path)
    labels = rollout(pair.ours, pair.inputs.given()).column_labels
    assert labels[0] == "learned" and labels[1:3] == ["0,0", "0,1"]
    front = pair.ours.config.stack.embed.front
    assert labels[-1] == f"{front.grid[0] - 1},{front.grid[1] - 1}"


def test_what_is_refused(model, tmp_path):
    with pytest.raises(ClearheadError, match="no row 1"):
        rollout(model, "keys", row=1)
    with pytest.raises(ClearheadError, match="heads is 'sum'"):
        rollout(model, "keys", heads="sum")
    with pytest.raises(ClearheadError, match="no part 'encoder'"):
        rollout(model, "keys", part="encoder")
    for folder, (family, name) in enumerate((("jamba", "hybrid"), ("clip", None))):
        pair = of(family, name, tmp_path / str(folder))
        message = {"jamba": r"layers without attention \(0", "clip": "its stacks are 'image', 'text'"}[family]
        with pytest.raises(ClearheadError, match=message):
            rollout(pair.ours, pair.inputs.given())
