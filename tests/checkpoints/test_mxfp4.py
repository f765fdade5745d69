"""Experts packed as MXFP4: read exactly, whatever dtype is asked for, and saved as plain numbers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import clearhead
from clearhead.checkpoints import open_checkpoint
from clearhead.checkpoints.mxfp4 import unpack
from clearhead.errors import ClearheadError
from tests.tiny.gpt_oss import make

VALUES = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def pack(weights: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(expert, in, out) as blocks and scales (OCP Microscaling, section 6.3), and the numbers they stand for."""
    rows = weights.double().transpose(1, 2).contiguous().numpy()
    groups = rows.reshape(*rows.shape[:2], -1, 32)
    exponents = np.floor(np.log2(np.abs(groups).max(axis=-1))) - 2
    scaled = groups / 2.0 ** exponents[..., None]
    codes = np.abs(np.abs(scaled)[..., None] - VALUES).argmin(axis=-1)
    meant = np.copysign(VALUES[codes], scaled) * 2.0 ** exponents[..., None]
    codes = codes + 8 * np.signbit(scaled)
    blocks = (codes[..., 0::2] + 16 * codes[..., 1::2]).astype(np.uint8)
    back = torch.from_numpy(meant.reshape(rows.shape)).transpose(1, 2).contiguous().float()
    return torch.from_numpy(blocks), torch.from_numpy((exponents + 127).astype(np.uint8)), back


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> tuple[Path, Path]:
    """A checkpoint with packed experts, in bfloat16 elsewhere, and the same with plain ones."""
    packed, plain = tmp_path_factory.mktemp("packed"), tmp_path_factory.mktemp("plain")
    theirs = make(num_hidden_layers=2, hidden_size=64, intermediate_size=96, num_local_experts=3).bfloat16()
    theirs.save_pretrained(plain)
    tensors = load_file(plain / "model.safetensors")
    config = json.loads((plain / "config.json").read_text())
    outer = {}
    for name in [n for n in tensors if n.endswith(("gate_up_proj", "down_proj"))]:
        blocks, scales, meant = pack(tensors[name])
        outer |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        tensors[name] = meant.bfloat16()
        assert torch.equal(tensors[name].float(), meant)
    save_file(tensors, plain / "model.safetensors")
    rest = {name: tensor for name, tensor in tensors.items() if f"{name}_blocks" not in outer}
    save_file({**rest, **outer}, packed / "model.safetensors")
    said = {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn", "lm_head"]}
    (packed / "config.json").write_text(json.dumps({**config, "quantization_config": said}))
    return packed, plain


@pytest.mark.parametrize("dtype", [None, "bfloat16", "float32"])
def test_loaded_as_what_it_stands_for(folders, dtype):
    packed, plain = (clearhead.load(folder, dtype=dtype) for folder in folders)
    assert packed.dtype == getattr(torch, dtype or "bfloat16")
    for name, parameter in plain.named_parameters():
        assert torch.equal(packed.get_parameter(name), parameter), name
    tokens = torch.randint(0, 99, (2, 9))
    with torch.no_grad():
        assert torch.equal(packed(tokens), plain(tokens))


def test_read_as_transformers_does(folders):
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    raw = load_file(folders[0] / "model.safetensors")
    with open_checkpoint(folders[0]) as checkpoint:
        names = [name for name, info in checkpoint.tensors.items() if info.dtype == "MXFP4"]
        assert len(names) == 4
        for name in names:
            theirs = convert_moe_packed_tensors(raw[f"{name}_blocks"], raw[f"{name}_scales"])
            assert torch.equal(checkpoint.read(name), theirs)
            turned = torch.empty(theirs.transpose(1, 2).shape, dtype=torch.float32).transpose(1, 2)
            checkpoint.read_into(name, turned)
            assert torch.equal(turned, theirs.float())


def test_chunks_of_a_large_tensor(folders, monkeypatch):
    with open_checkpoint(folders[0]) as checkpoint:
        name = "model.layers.0.mlp.experts.down_proj"
        whole = checkpoint.read(name)
        monkeypatch.setattr("clearhead.checkpoints.checkpoint.CHUNK", 96)
        assert torch.equal(checkpoint.read(name), whole)
        target = torch.empty_like(whole)
        checkpoint.read_into(name, target)
        assert torch.equal(target, whole)


def test_every_byte_and_every_scale():
    blocks = torch.arange(256, dtype=torch.uint8).view(16, 16).repeat(256, 1)
    scales = torch.arange(256, dtype=torch.uint8).repeat_interleave(16)
    signed = torch.from_numpy(np.concatenate([VALUES, -VALUES]))
    codes = torch.stack([blocks & 15, blocks >> 4], dim=-1).flatten(1).long()
    meant = signed[codes] * 2.0 ** (scales.double() - 127)[:, None]
    there, got = scales < 255, unpack(blocks, scales)
    assert torch.equal(got[there], meant.bfloat16()[there])
    assert got[~there].isnan().all()


def test_saved_as_plain_numbers(folders, tmp_path):
    clearhead.save(clearhead.load(folders[0]), tmp_path / "saved")
    saved, plain = (load_file(folder / "model.safetensors") for folder in (tmp_path / "saved", folders[1]))
    assert saved.keys() == plain.keys()
    assert all(torch.equal(saved[name], plain[name]) for name in plain)
    assert all(tensor.dtype == torch.bfloat16 for tensor in saved.values())
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert config == json.loads((folders[1] / "config.json").read_text())


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"quant_method": "awq", "bits": 4}, "'quantization_config' = .*awq"),
        ({"quant_method": "mxfp4", "group": 64}, "quantization_config says group"),
        (None, "experts.down_proj is missing(?s:.*)experts.down_proj_blocks has no place"),
    ],
)
def test_other_methods_are_refused(folders, tmp_path, said, words):
    config = json.loads((folders[0] / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "quantization_config": said}))
    save_file(load_file(folders[0] / "model.safetensors"), tmp_path / "model.safetensors")
    with pytest.raises(ClearheadError, match=words):
        clearhead.load(tmp_path)


def test_blocks_without_their_scales(folders, tmp_path):
    tensors = load_file(folders[0] / "model.safetensors")
    name = "model.layers.1.mlp.experts.gate_up_proj"
    del tensors[f"{name}_scales"]
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((folders[0] / "config.json").read_bytes())
    with pytest.raises(ClearheadError, match=rf"{name} is missing(?s:.*){name}_blocks has no place"):
        clearhead.load(tmp_path)


def test_a_scale_that_is_no_number(folders, tmp_path):
    tensors = load_file(folders[0] / "model.safetensors")
    tensors["model.layers.1.mlp.experts.down_proj_scales"][0, 3, 1] = 255
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_bytes((folders[0] / "config.json").read_bytes())
    with pytest.raises(ClearheadError, match=r"experts\.down_proj' hold NaN"):
        clearhead.load(tmp_path)
