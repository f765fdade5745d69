"""Matrices in eight bits with a scale a square: read as their product, and saved as plain numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

import clearhead
from clearhead.errors import ClearheadError
from tests.tiny.deepseek_v3 import TINY

SQUARE = [24, 16]
"""Neither divides the widths below, so that squares at the edges are cut off."""


def packed(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """In eight bits, the scales of its squares, and the numbers that the two stand for, by loops over squares."""
    scales = torch.empty([-(-n // side) for n, side in zip(weight.shape, SQUARE, strict=True)])
    small, meant = torch.empty(weight.shape, dtype=torch.float8_e4m3fn), torch.empty(weight.shape, dtype=torch.float64)
    for i in range(scales.shape[0]):
        for j in range(scales.shape[1]):
            at = (slice(i * SQUARE[0], (i + 1) * SQUARE[0]), slice(j * SQUARE[1], (j + 1) * SQUARE[1]))
            scales[i, j] = weight[at].abs().max() / 448
            small[at] = (weight[at] / scales[i, j]).to(torch.float8_e4m3fn)
            meant[at] = small[at].double() * scales[i, j].double()
    return small, scales, meant


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Path, dict[str, torch.Tensor]]:
    """A tiny DeepSeek-V3 as it is published: projections in eight bits, all else in bfloat16."""
    folder = tmp_path_factory.mktemp("fp8")
    record = TINY[0] if isinstance(TINY, tuple) else TINY
    record.make(**next(iter(record.configs.values()))).bfloat16().save_pretrained(folder)
    tensors, meant = load_file(folder / "model.safetensors"), {}
    for name in [n for n in tensors if n.endswith("_proj.weight") or "_proj_with_mqa.weight" in n]:
        tensors[name], tensors[name + "_scale_inv"], meant[name] = packed(tensors[name].float())
    save_file(tensors, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    said = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": SQUARE}
    (folder / "config.json").write_text(json.dumps({**config, "quantization_config": said}))
    return folder, meant


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", None])
def test_loaded_as_the_product(made, dtype, tmp_path):
    folder, meant = made
    model = clearhead.load(folder, dtype=dtype)
    assert model.dtype == getattr(torch, dtype or "bfloat16")
    clearhead.save(model, tmp_path / "plain")
    saved = load_file(tmp_path / "plain" / "model.safetensors")
    assert len(meant) > 20
    for name, numbers in meant.items():
        assert torch.equal(saved[name], numbers.float().to(model.dtype)), name
    assert "quantization_config" not in json.loads((tmp_path / "plain" / "config.json").read_text())
    with torch.no_grad():
        assert model(torch.randint(0, 99, (2, 9))).isfinite().all()


def test_scales_of_another_shape_are_refused(made, tmp_path):
    folder, meant = made
    tensors, name = load_file(folder / "model.safetensors"), next(iter(meant))
    tensors[name + "_scale_inv"] = tensors[name + "_scale_inv"][:1, :1].contiguous()
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(ClearheadError, match=r"_scale_inv' has shape \[1, 1\], and .* squares of \[24, 16\]"):
        clearhead.load(tmp_path)
