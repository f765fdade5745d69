"""PyTorch's .bin files: read without running anything in them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from clearhead.checkpoints import open_checkpoint
from clearhead.errors import ClearheadError

WEIGHTS = {"a": torch.randn(300, 40), "b": torch.randn(40, 300).t(), "c": torch.arange(5)}


class Trap:
    """A pickle that makes a file when it is loaded carelessly."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def folder_of(path: Path, content: Any, **options: Any) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text("{}")
    torch.save(content, path / "pytorch_model.bin", **options)
    return path


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "before 1.6"])
def test_what_is_there_is_read(tmp_path: Path, zipped: bool) -> None:
    folder = folder_of(tmp_path / "m", WEIGHTS, _use_new_zipfile_serialization=zipped)
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.format == "pickle"
        for name, tensor in WEIGHTS.items():
            for _ in range(2):  # pages that were given back come again with the same contents
                assert torch.equal(checkpoint.read(name), tensor)


def test_shards_are_read(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", {})
    (folder / "pytorch_model.bin").unlink()
    names = {name: f"pytorch_model-{name}.bin" for name in WEIGHTS}
    for name, file in names.items():
        torch.save({name: WEIGHTS[name]}, folder / file)
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": names}))
    with open_checkpoint(folder) as checkpoint:
        assert all(torch.equal(checkpoint.read(name), tensor) for name, tensor in WEIGHTS.items())
    (folder / names["b"]).unlink()
    with pytest.raises(ClearheadError, match=r"lacks 1 of 3.*pytorch_model-b.bin"):
        open_checkpoint(folder)


def test_safetensors_is_preferred(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", {"x": Trap(tmp_path / "sprung")})
    save_file({"x": torch.ones(2)}, folder / "model.safetensors")
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.format == "safetensors"


def test_a_pickle_that_wants_to_run_code_is_refused_and_runs_none(tmp_path: Path) -> None:
    trap = tmp_path / "sprung"
    folder = folder_of(tmp_path / "m", {"x": Trap(trap)})
    with pytest.raises(
        ClearheadError, match=r"pytorch_model.bin is a pickle that wants to run code \(it calls .*mkdir"
    ):
        open_checkpoint(folder)
    assert not trap.exists()


@pytest.mark.parametrize("content", [[torch.ones(1)], {"model": {"x": torch.ones(1)}}, {"step": 3}, {3: torch.ones(1)}])
def test_what_is_no_table_of_tensors_is_refused(tmp_path: Path, content: Any) -> None:
    with pytest.raises(ClearheadError, match=r"pytorch_model.bin.*expected a"):
        open_checkpoint(folder_of(tmp_path / "m", content))


@pytest.mark.parametrize("keep", [0, 10, 1000, -1])
def test_a_damaged_file_is_refused(tmp_path: Path, keep: int) -> None:
    folder = folder_of(tmp_path / "m", WEIGHTS)
    path = folder / "pytorch_model.bin"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ClearheadError, match=r"pytorch_model.bin.*Download the file again"):
        open_checkpoint(folder)


def test_a_git_lfs_pointer_is_named_as_one(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", {})
    (folder / "pytorch_model.bin").write_text("version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ClearheadError, match="git lfs pull"):
        open_checkpoint(folder)
