"""Configs and files as they are on the Hub: older keys, and buffers that hold nothing learned."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import clearhead
from tests import tiny
from tests.oracles import close

Keys = dict[str, Any]


def plain(config: Keys) -> Keys:
    """The base beside the scaling, as all of them were."""
    rope = config.pop("rope_parameters")
    rope["type"] = rope.pop("rope_type")
    theta = rope.pop("rope_theta")
    return {**config, "rope_theta": theta, "rope_scaling": rope if rope["type"] != "default" else None}


def neox(config: Keys) -> Keys:
    rope = config.pop("rope_parameters")
    names = {"rotary_pct": rope.pop("partial_rotary_factor"), "rotary_emb_base": rope.pop("rope_theta")}
    scaling = {"type": rope.pop("rope_type"), **rope}
    return {**config, **names, "rope_scaling": scaling if scaling["type"] != "default" else None}


def no_layer_types(config: Keys) -> Keys:
    config.pop("layer_types")
    return plain(config)


def two_bases(config: Keys) -> Keys:
    for name in ("rope_parameters", "layer_types", "_sliding_window_pattern"):
        config.pop(name, None)
    return {**config, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window_pattern": 6}


def phi3(kind: str) -> Callable[[Keys], Keys]:
    def old(config: Keys) -> Keys:
        rope = config.pop("rope_parameters")
        scaling = {"type": kind, **{name: rope[name] for name in ("short_factor", "long_factor")}}
        theta, fraction = rope["rope_theta"], rope["partial_rotary_factor"]
        added = {"rope_theta": theta, "rope_scaling": scaling, "partial_rotary_factor": fraction}
        return {**config, **added, "attention_bias": False, "embd_pdrop": 0.0}

    return old


CASES: list[tuple[str, str, Callable[[Keys], Keys]]] = [
    ("llama", "dynamic", plain),
    ("gemma3_text", "five_to_one", two_bases),
    ("gpt_neox", "parallel", neox),
    ("gpt_neox", "one_after_the_other", neox),
    ("gpt_neox", "scaled", neox),
    ("mistral", "tied", plain),
    ("qwen2", "windows_from_the_second_layer", no_layer_types),
    ("qwen2", "yarn", plain),
    ("qwen3", "windows_biased_tied", no_layer_types),
    ("gemma2", "turns", no_layer_types),
    ("phi3", "longrope", phi3("longrope")),
    ("phi3", "longrope", phi3("su")),
    ("phi3", "short", phi3("yarn")),
    ("olmo2", "biased_tied", plain),
    ("granite", "multiplied", plain),
]


@pytest.mark.parametrize(("family", "name", "old"), CASES)
def test_older_keys_mean_the_same(family: str, name: str, old: Callable[[Keys], Keys], tmp_path: Path) -> None:
    theirs: Any = tiny.make(family, name)
    theirs.save_pretrained(tmp_path / "new")
    file = tmp_path / "new" / "config.json"
    config = json.loads(file.read_text())
    config["torch_dtype"] = config.pop("dtype")
    file.write_text(json.dumps(old(config)))
    ours = clearhead.load(tmp_path / "new")
    tokens = torch.randint(0, 99, (2, 20), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        assert close(ours(tokens), theirs(tokens).logits)
    clearhead.save(ours, tmp_path / "saved")
    written = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert not {"rope_theta", "rope_scaling", "rotary_pct", "rotary_emb_base", "torch_dtype"} & set(written)
    again = type(theirs).from_pretrained(tmp_path / "saved").eval()
    with torch.no_grad():
        assert close(again(tokens).logits, theirs(tokens).logits)


BUFFERS: dict[str, dict[str, torch.Tensor]] = {
    "gpt_neox": {
        "gpt_neox.layers.{}.attention.bias": torch.ones(1, 1, 40, 40),
        "gpt_neox.layers.{}.attention.masked_bias": torch.tensor(-1e9),
        "gpt_neox.layers.{}.attention.rotary_emb.inv_freq": torch.ones(2),
    },
    "llama": {"model.layers.{}.self_attn.rotary_emb.inv_freq": torch.ones(8)},
    "gpt2": {
        "transformer.h.{}.attn.bias": torch.ones(1, 1, 40, 40),
        "transformer.h.{}.attn.masked_bias": torch.tensor(-1e4),
    },
}


@pytest.mark.parametrize("bare", [False, True])
@pytest.mark.parametrize("family", BUFFERS)
def test_files_with_buffers_with_and_without_the_prefix(family: str, bare: bool, tmp_path: Path) -> None:
    theirs: Any = tiny.make(family)
    theirs.save_pretrained(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    for layer in range(3):
        tensors |= {name.format(layer): value.clone() for name, value in BUFFERS[family].items()}
    if bare:
        prefix = next(iter(BUFFERS[family])).partition(".")[0] + "."
        tensors = {name.removeprefix(prefix): value for name, value in tensors.items()}
    save_file(tensors, tmp_path / "model.safetensors")
    tokens = torch.randint(0, 99, (2, 20), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        assert close(clearhead.load(tmp_path)(tokens), theirs(tokens).logits)
