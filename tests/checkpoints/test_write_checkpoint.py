"""Saving: what is written is what is read back, and a folder is never left half-written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor

from clearhead.checkpoints import open_checkpoint, write_checkpoint
from clearhead.errors import ClearheadError

TENSORS = {
    "a": torch.randn(30, 40),
    "b": torch.randn(20, 50).bfloat16(),
    "c": torch.randn(50, 20).t(),
    "d": torch.arange(3),
    "e": torch.tensor(True),
}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("limit", [10**9, 4000, 1])
def test_what_is_written_is_read_back(tmp_path: Path, limit: int) -> None:
    folder = tmp_path / "new" / "m"
    (tmp_path / "merges.txt").write_bytes(b"\xffa b\r\n")
    sidecars: dict[str, Path | bytes] = {"merges.txt": tmp_path / "merges.txt", "tokenizer.json": b"{}"}
    write_checkpoint(folder, {"n": 1, "name": "\u00e9"}, TENSORS.items(), sidecars, limit)
    assert (folder / "merges.txt").read_bytes() == b"\xffa b\r\n"
    with open_checkpoint(folder) as checkpoint:
        assert checkpoint.config == {"n": 1, "name": "\u00e9"}
        assert set(checkpoint.sidecar_files) == set(sidecars)
        assert set(checkpoint.tensors) == set(TENSORS)
        for name, tensor in TENSORS.items():
            assert checkpoint.tensors[name].dtype == tensor.dtype
            assert torch.equal(checkpoint.read(name), tensor)
    shards = list(folder.glob("model-*.safetensors"))
    assert len(shards) == {10**9: 0, 4000: 4, 1: 5}[limit]
    assert len({path.stat().st_mode for path in folder.iterdir()}) == 1  # nothing is hidden from other users
    assert [path.name for path in folder.parent.iterdir()] == ["m"]
    if shards:
        size = sum(tensor.nbytes for tensor in TENSORS.values())
        assert json.loads((folder / "model.safetensors.index.json").read_text())["metadata"] == {"total_size": size}


def test_the_file_says_that_it_is_of_pytorch(tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "m", {}, TENSORS.items())
    with safetensors.safe_open(tmp_path / "m" / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}  # other readers refuse a file without it


def test_slices_of_one_tensor_are_written_apart(tmp_path: Path) -> None:
    fused = torch.nn.Parameter(torch.randn(6, 4))
    write_checkpoint(tmp_path / "m", {}, [("q", fused[:2]), ("k", fused[2:4]), ("v", fused[4:])])
    with open_checkpoint(tmp_path / "m") as checkpoint:
        assert torch.equal(torch.cat([checkpoint.read(name) for name in "qkv"]), fused.detach())


def test_saving_over_a_model_leaves_nothing_of_its_weights(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    write_checkpoint(folder, {"v": 1}, TENSORS.items(), {"tokenizer.json": b"1"}, 4000)
    (folder / "notes.txt").write_text("mine")
    for version, limit in ((2, 10**9), (3, 1), (4, 4000), (5, 10**9)):
        write_checkpoint(folder, {"v": version}, [("x", torch.ones(9)), ("y", torch.ones(9))], {}, limit)
        with open_checkpoint(folder) as checkpoint:
            assert checkpoint.config == {"v": version}
            assert set(checkpoint.tensors) == {"x", "y"}
        assert len(list(folder.glob("*.safetensors"))) == (2 if limit == 1 else 1)
    assert (folder / "notes.txt").read_text() == "mine"
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]


def test_a_model_can_be_saved_where_it_was_read_from(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    write_checkpoint(folder, {}, TENSORS.items(), {"tokenizer.json": b"1"})
    before = contents(folder)
    with open_checkpoint(folder) as checkpoint:
        tensors = ((name, checkpoint.read(name)) for name in checkpoint.tensors)
        write_checkpoint(folder, checkpoint.config, tensors, checkpoint.sidecar_files)
        assert torch.equal(checkpoint.read("a"), TENSORS["a"])  # the old file is still the one that is mapped
    assert contents(folder) == before


@pytest.mark.parametrize("exists", [False, True])
@pytest.mark.parametrize("problem", [KeyboardInterrupt, OSError, safetensors.SafetensorError])
def test_stopping_half_way_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exists: bool, problem: type[BaseException]
) -> None:
    folder = tmp_path / "m"
    if exists:
        write_checkpoint(folder, {"v": 1}, TENSORS.items(), {"tokenizer.json": b"1"}, 4000)
        before = contents(folder)

    def stop(tensors: dict[str, Tensor], path: Path, **options: Any) -> None:
        path.write_bytes(b"half")
        raise problem("disk full")

    monkeypatch.setattr(safetensors.torch, "save_file", stop)
    with pytest.raises(KeyboardInterrupt if problem is KeyboardInterrupt else ClearheadError):
        write_checkpoint(folder, {"v": 2}, TENSORS.items(), {"tokenizer.json": b"2"})
    if exists:
        assert contents(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == (["m"] if exists else [])


def test_a_tensor_that_fails_changes_nothing(tmp_path: Path) -> None:
    def tensors() -> Iterator[tuple[str, Tensor]]:
        yield "a", torch.ones(2000)
        yield "b", torch.ones(2000)
        raise ClearheadError("no place for c")

    with pytest.raises(ClearheadError, match="no place for c"):
        write_checkpoint(tmp_path / "m", {}, tensors(), {}, 100)
    assert list(tmp_path.iterdir()) == []


def test_what_can_not_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ClearheadError, match="is a file; give a folder"):
        write_checkpoint(tmp_path / "file", {}, [])
    with pytest.raises(ClearheadError, match="can't be written"):
        write_checkpoint(tmp_path / "file" / "m", {}, [])
    with pytest.raises(ClearheadError, match="two tensors to save are called 'a'"):
        write_checkpoint(tmp_path / "m", {}, [("a", torch.ones(1)), ("a", torch.ones(1))])
    for name in ("../x", "a/b", "config.json", ".."):
        with pytest.raises(ClearheadError, match="can't be the name"):
            write_checkpoint(tmp_path / "m", {}, [], {name: b""})
    with pytest.raises(ClearheadError, match="can't be written"):
        write_checkpoint(tmp_path / "m", {}, [], {"tokenizer.json": tmp_path / "gone.json"})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
