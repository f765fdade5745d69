"""Cutting heads off, in every family that has them: the same numbers as with their output set to zero."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

import clearhead
from clearhead.errors import ClearheadError
from clearhead.lens.pruning.importance import HeadLayer, head_layers
from clearhead.model.kept_heads import attention_layers
from clearhead.model.pruned import without_heads
from clearhead.taps import Editor
from tests import tiny
from tests.families.pairs import Pair, named, worst
from tests.oracles import TOLERANCE

F32 = TOLERANCE[torch.float32]

every = pytest.mark.parametrize("pair", tiny.cases(), indirect=True, ids="-".join)


def some_heads(layer: HeadLayer, number: int) -> list[int]:
    """Heads that can go together, other ones in each layer: all of a key-value head's, or one of each."""
    shared = layer.n_heads // layer.n_kv_heads
    if layer.n_kv_heads > 1 and (shared == 1 or number % 2):
        group = number % layer.n_kv_heads
        return list(range(group * shared, (group + 1) * shared))
    return [g * shared + (number + g) % shared for g in range(layer.n_kv_heads)] if shared > 1 else []


def cut_of(config: object) -> dict[str, list[int]]:
    found = {}
    for number, layer in enumerate(head_layers(config)):  # type: ignore[arg-type]
        if heads := some_heads(layer, number):
            found |= dict.fromkeys(layer.addresses, heads)
    return found


def zeroed(heads: list[int]) -> Callable[[Tensor], Tensor]:
    def edit(z_BHTK: Tensor) -> Tensor:
        z_BHTK = z_BHTK.clone()
        z_BHTK[:, heads] = 0
        return z_BHTK

    return edit


@every
def test_without_heads_is_with_their_output_zero(pair: Pair, tmp_path: Path) -> None:
    if not attention_layers(pair.ours.config):
        with pytest.raises(ClearheadError, match="no attention"):
            head_layers(pair.ours.config)
        return
    cut = cut_of(pair.ours.config)
    assert cut, "no head of this model can go"
    edits = {f"{address}.z": zeroed(heads) for address, heads in cut.items()}
    expected = named(pair.ask(pair.inputs, taps=Editor(edits)))
    smaller = without_heads(pair.ours, cut)
    found = named(pair.ask(pair.inputs, smaller))
    assert worst(found, expected) <= F32
    assert worst(found, pair.whole[0]) > 1e-2, "these heads do nothing: a wrong one would not show"

    folder = tmp_path / "smaller"
    clearhead.save(smaller, folder)
    again = clearhead.load(folder)
    assert again.config == smaller.config
    back = named(pair.ask(pair.inputs, again))
    assert all(torch.equal(back[name], value) for name, value in found.items())
    assert {name: p.shape for name, p in again.named_parameters()} == {
        n: p.shape for n, p in smaller.named_parameters()
    }
    n_before, n_after = (sum(p.numel() for p in model.parameters()) for model in (pair.ours, smaller))
    assert n_after < n_before
    assert clearhead.load(pair.folder).config == pair.ours.config


@pytest.mark.parametrize("family", ["llama", "bert", "t5"])
def test_transformers_does_not_load_it_wrongly(family: str, tmp_path: Path) -> None:
    """It knows nothing of heads that were cut off (since version 5), and must stumble over the shapes."""
    theirs = tiny.make(family)
    theirs.save_pretrained(tmp_path / "whole")
    model = clearhead.load(tmp_path / "whole")
    clearhead.save(without_heads(model, cut_of(model.config)), tmp_path / "smaller")
    with pytest.raises(RuntimeError, match=r"(?i)size mismatch|mismatched|ignore_mismatched_sizes"):
        type(theirs).from_pretrained(tmp_path / "smaller")


def test_the_words_of_older_files_are_read(tmp_path: Path) -> None:
    """`transformers` up to version 4 wrote what it had cut off as {layer: heads}, heads as first counted."""
    theirs = tiny.make("bert")
    theirs.save_pretrained(tmp_path / "whole")
    model = clearhead.load(tmp_path / "whole")
    once = without_heads(model, {"layers.1.mixer": [1]})
    # What was head 2 is now head 1.
    twice = without_heads(once, {"layers.1.mixer": [1], "layers.0.mixer": [3]})
    clearhead.save(twice, tmp_path / "smaller")
    config = json.loads((tmp_path / "smaller" / "config.json").read_text())
    assert config["pruned_heads"] == {"0": [3], "1": [1, 2]}
    assert config["num_attention_heads"] == 4
    assert clearhead.load(tmp_path / "smaller").layers[1].mixer.kept.heads == (0, 3)


def test_what_a_config_file_says_wrongly_is_refused(tmp_path: Path) -> None:
    tiny.make("llama").save_pretrained(tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    config = json.loads(file.read_text())
    for said, problem in (
        ({"0": [9]}, "no head 9"),
        ({"7": [0]}, r"layers\.7\.mixer"),
        ({"0": [0, 1, 2, 3]}, "at least one must stay"),
        ({"0": [0]}, "serve as many"),
        ({"0": "all"}, "mapping from layers"),
        ([0], "mapping from layers"),
        ({"0": [0, 1]}, "shape"),
    ):
        file.write_text(json.dumps({**config, "pruned_heads": said}))
        with pytest.raises(ClearheadError, match=problem):
            clearhead.load(tmp_path / "model")
