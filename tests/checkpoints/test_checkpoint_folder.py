"""Folders in the Hub's layout: what is read from them, and how a broken one is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from clearhead.checkpoints import open_checkpoint
from clearhead.checkpoints.checkpoint import CHUNK, pieces
from clearhead.errors import ClearheadError

WEIGHTS = {"a.weight": torch.randn(3, 4), "b.weight": torch.randn(2, 2).bfloat16(), "c": torch.arange(5)}


def folder_of(path: Path, tensors: dict[str, Tensor] | None = None) -> Path:
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text('{"model_type": "x"}')
    if tensors is not None:
        save_file(tensors, path / "model.safetensors")
    return path


def sharded(path: Path) -> Path:
    folder_of(path)
    names = {}
    for number, (name, tensor) in enumerate(WEIGHTS.items(), 1):
        file = f"model-0000{number}-of-00003.safetensors"
        save_file({name: tensor}, path / file)
        names[name] = file
    (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": names}))
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ClearheadError) as caught:
        open_checkpoint(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize("shards", [1, 3])
def test_what_is_there_is_read(tmp_path: Path, shards: int) -> None:
    folder = sharded(tmp_path / "m") if shards > 1 else folder_of(tmp_path / "m", WEIGHTS)
    (folder / "tokenizer.json").write_bytes(b"{}")
    (folder / "merges.txt").write_bytes(b"a b")
    (folder / "generation_config.json").write_text('{"top_k": 3}')
    (folder / "README.md").write_bytes(b"about")
    with open_checkpoint(str(folder)) as checkpoint:
        assert checkpoint.format == "safetensors"
        assert checkpoint.config == {"model_type": "x"}
        assert checkpoint.generation_config == {"top_k": 3}
        assert set(checkpoint.sidecar_files) == {"tokenizer.json", "merges.txt", "generation_config.json"}
        assert set(checkpoint.tensors) == set(WEIGHTS)
        for name, tensor in WEIGHTS.items():
            info = checkpoint.tensors[name]
            assert (info.shape, info.dtype) == (tuple(tensor.shape), tensor.dtype)
            assert torch.equal(checkpoint.read(name), tensor)
        assert checkpoint.read("b.weight", torch.float32).dtype == torch.float32


@pytest.mark.parametrize(
    "target",
    [
        torch.zeros(700, 900),
        torch.zeros(900, 700).t(),
        torch.zeros(700, 2000)[:, 50:950],
        torch.zeros(700, 900, dtype=torch.float64),
        torch.zeros(1400, 900)[::2],
    ],
    ids=["plain", "transposed", "columns", "float64", "every other row"],
)
def test_reading_into_any_place_goes_in_chunks(tmp_path: Path, target: Tensor) -> None:
    tensor = torch.randn(700, 900)
    assert tensor.numel() > 2 * CHUNK
    with open_checkpoint(folder_of(tmp_path / "m", {"x": tensor})) as checkpoint:
        checkpoint.read_into("x", target)
    assert torch.equal(target, tensor.to(target.dtype))


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
@pytest.mark.parametrize(
    "target",
    [torch.empty(()), torch.empty(0, 3), torch.empty(30), torch.empty(5, 6, 7), torch.empty(7, 6, 5).transpose(0, 2)],
    ids=lambda tensor: str(tuple(tensor.shape)),
)
def test_pieces_cover_a_tensor_once_and_in_order(target: Tensor, size: int) -> None:
    target.fill_(-1)
    at = 0
    for begin, end, piece in pieces(target, size):
        assert begin == at
        assert piece.numel() == end - begin
        piece.copy_(torch.arange(begin, end).view(piece.shape))
        at = end
    assert torch.equal(target.reshape(-1), torch.arange(float(target.numel())))


def test_a_parameter_can_be_read_into(tmp_path: Path) -> None:
    parameter = torch.nn.Parameter(torch.zeros(3, 4))
    with open_checkpoint(folder_of(tmp_path / "m", WEIGHTS)) as checkpoint:
        checkpoint.read_into("a.weight", parameter)
    assert torch.equal(parameter.data, WEIGHTS["a.weight"])
    assert parameter.grad_fn is None


def test_a_wrong_shape_or_name_leaves_the_place_alone(tmp_path: Path) -> None:
    target = torch.ones(4, 3)
    with open_checkpoint(folder_of(tmp_path / "m", WEIGHTS)) as checkpoint:
        with pytest.raises(ClearheadError, match=r"shape \[3, 4\].*shape \[4, 3\]"):
            checkpoint.read_into("a.weight", target)
        with pytest.raises(ClearheadError, match="no tensor 'nope'"):
            checkpoint.read_into("nope", target)
    assert bool((target == 1).all())


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_weights_that_are_not_numbers_are_refused(tmp_path: Path, bad: float, dtype: torch.dtype) -> None:
    tensor = torch.randn(600, 600).to(dtype)
    tensor[599, 3] = bad
    with open_checkpoint(folder_of(tmp_path / "m", {"x": tensor})) as checkpoint:
        with pytest.raises(ClearheadError, match=r"model.safetensors.*'x' hold (NaN|infinite)"):
            checkpoint.read("x", torch.float32)
        found = checkpoint.read("x", check_finite=False)
    assert torch.equal(found.nan_to_num(7), tensor.nan_to_num(7))


def test_large_values_are_fine_unless_the_dtype_is_too_small(tmp_path: Path) -> None:
    tensor = torch.full((64,), 3e38)  # the sum that looks for NaN overflows; the values don't
    with open_checkpoint(folder_of(tmp_path / "m", {"x": tensor})) as checkpoint:
        assert torch.equal(checkpoint.read("x"), tensor)
        with pytest.raises(ClearheadError, match="too large for float16"):
            checkpoint.read("x", torch.float16)


def test_a_folder_without_config_or_weights_says_what_it_has(tmp_path: Path) -> None:
    assert "empty" in refusal(tmp_path)
    (tmp_path / "notes.txt").touch()
    assert "notes.txt" in refusal(tmp_path)
    folder_of(tmp_path / "inner", WEIGHTS)
    assert str(tmp_path / "inner") in refusal(tmp_path)
    (tmp_path / "m.gguf").touch()
    assert str(tmp_path / "m.gguf") in refusal(tmp_path)
    assert "no weights" in refusal(folder_of(tmp_path / "bare"))


@pytest.mark.parametrize("text", ["", "{", "[1]", '"x"', "[" * 100_000, "\x80"])
def test_a_config_that_is_no_json_object_is_refused(tmp_path: Path, text: str) -> None:
    (folder_of(tmp_path / "m", WEIGHTS) / "config.json").write_text(text, encoding="latin-1")
    assert "config.json" in refusal(tmp_path / "m")


def test_a_config_that_is_a_git_lfs_pointer_is_named_as_one(tmp_path: Path) -> None:
    (folder_of(tmp_path / "m") / "config.json").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    assert "git lfs pull" in refusal(tmp_path / "m")


def test_all_missing_shards_come_in_one_error(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "m")
    for number in (1, 3):
        (folder / f"model-0000{number}-of-00003.safetensors").unlink()
    text = refusal(folder)
    assert "lacks 2 of 3" in text
    assert "model-00001-of-00003.safetensors, model-00003-of-00003.safetensors" in text


def test_an_index_that_does_not_fit_its_shards_is_refused(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "m")
    index = folder / "model.safetensors.index.json"
    names = json.loads(index.read_text())["weight_map"]

    def changed(weight_map: object) -> str:
        index.write_text(json.dumps({"weight_map": weight_map}))
        return refusal(folder)

    assert "ghost (model-00001" in changed({**names, "ghost": "model-00001-of-00003.safetensors"})
    assert "another file" in changed({**names, "a.weight": names["c"], "c": names["a.weight"]})
    assert "outside its folder" in changed({**names, "c": "../model.safetensors"})
    assert "weight_map" in changed(None)
    assert "weight_map" in changed({"a": 3})


def test_a_damaged_shard_is_named(tmp_path: Path) -> None:
    folder = sharded(tmp_path / "m")
    shard = folder / "model-00002-of-00003.safetensors"
    shard.write_bytes(shard.read_bytes()[:-1])
    assert shard.name in refusal(folder)


def test_one_file_of_a_folder_points_to_the_folder(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "m", WEIGHTS)
    with pytest.raises(ClearheadError, match=f"Give its folder: {folder}"):
        open_checkpoint(folder / "model.safetensors")
