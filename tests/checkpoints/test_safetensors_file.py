"""Case H21, and every other way a safetensors file can be wrong."""

from __future__ import annotations

import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from clearhead.checkpoints.safetensors_file import DTYPES, SafetensorsFile
from clearhead.errors import ClearheadError


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "model.safetensors"
    save_file({"a": torch.arange(6.0).view(2, 3), "b": torch.arange(4, dtype=torch.int64)}, path)
    return path


def write(path: Path, header: Any, data: bytes = b"", length: int | None = None) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def refusal(path: Path) -> str:
    with pytest.raises(ClearheadError) as caught:
        SafetensorsFile(path)
    text = str(caught.value)
    assert str(path) in text
    return text


def test_values_are_those_written(good: Path) -> None:
    file = SafetensorsFile(good)
    assert torch.equal(file.values(file.entries["a"], 0, 6), torch.arange(6.0))
    assert torch.equal(file.values(file.entries["b"], 1, 3), torch.tensor([1, 2]))
    file.release(file.entries["a"], 0, 6)
    assert torch.equal(file.values(file.entries["a"], 4, 6), torch.tensor([4.0, 5.0]))  # the pages come back
    file.close()


@pytest.mark.parametrize("kind", DTYPES)
def test_every_dtype_reads_as_the_library_reads_it(tmp_path: Path, kind: str) -> None:
    tensor = torch.arange(2, 6).to(DTYPES[kind])
    save_file({"x": tensor}, tmp_path / "x.safetensors")
    file = SafetensorsFile(tmp_path / "x.safetensors")
    entry = file.entries["x"]
    assert entry.dtype == DTYPES[kind]
    assert torch.equal(file.values(entry, 0, 4).view(torch.uint8), tensor.view(torch.uint8))


def test_unaligned_tensors_are_read(tmp_path: Path) -> None:
    header = {"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}
    text = json.dumps(header).encode()
    text += b" " * ((3 - len(text)) % 8)  # so that the data starts at an odd byte
    path = write(tmp_path / "x.safetensors", text, torch.tensor([1.5, -2.0]).numpy().tobytes())
    file = SafetensorsFile(path)
    assert file.values(file.entries["x"], 0, 2).tolist() == [1.5, -2.0]


@pytest.mark.parametrize("cut", ["one byte", "half", "inside the header", "inside the length", "all"])
def test_a_file_cut_short_is_refused_with_its_sizes(good: Path, cut: str) -> None:
    data = good.read_bytes()
    keep = {
        "one byte": len(data) - 1,
        "half": len(data) - 28,
        "inside the header": 20,
        "inside the length": 5,
        "all": 0,
    }[cut]
    good.write_bytes(data[:keep])
    text = refusal(good)
    assert "ownload the file again" in text
    assert str(keep) in text
    if cut in ("one byte", "half"):
        assert f"expected {len(data)} bytes, found {keep}" in text


def test_trailing_bytes_are_refused_with_both_sizes(good: Path) -> None:
    data = good.read_bytes()
    good.write_bytes(data + b"12345678")
    assert f"expected {len(data)} bytes, found {len(data) + 8}" in refusal(good)


def test_an_absurd_header_length_allocates_nothing(good: Path) -> None:
    write(good, {}, length=2**60)
    tracemalloc.start()
    text = refusal(good)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(2**60) in text
    assert peak < 1_000_000


def test_an_absurd_shape_allocates_nothing(tmp_path: Path) -> None:
    size = 2**60
    entry = {"dtype": "F32", "shape": [size], "data_offsets": [0, 4 * size]}
    path = write(tmp_path / "x.safetensors", {"x": entry})
    start = path.stat().st_size
    assert f"expected {4 * size + start} bytes, found {start}" in refusal(path)


def f32(begin: int, end: int, shape: list[Any] | None = None, dtype: Any = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": [(end - begin) // 4] if shape is None else shape, "data_offsets": [begin, end]}


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ({"a": f32(0, 8), "b": f32(4, 12)}, "'b' overlaps 'a'"),
        ({"a": f32(0, 8), "b": f32(0, 8)}, "overlaps"),
        ({"a": f32(0, 4), "b": f32(8, 12)}, "hole"),
        ({"a": f32(4, 12)}, "hole"),
        ({"a": f32(0, 12, [2])}, "needs 8 bytes"),
        ({"a": f32(0, 12, [-3])}, "shape"),
        ({"a": f32(0, 12, [3.0])}, "shape"),
        ({"a": f32(0, 12, [True, 3])}, "shape"),
        ({"a": f32(12, 0, [3])}, "data_offsets"),
        ({"a": {"dtype": "F32", "shape": [3]}}, "does not consist of"),
        ({"a": [1, 2]}, "does not consist of"),
        ({"a": f32(0, 12, dtype="F31")}, "dtype 'F31'"),
        ({"a": f32(0, 12, dtype=["F32"])}, "dtype"),
        ([1, 2], "not a JSON object"),
        (b'{"a": 1, ', "damaged"),
        (b"\xff\xfe{}", "damaged"),
        (b"[" * 100_000, "damaged"),
        (b'{"a": {"dtype": "F32", "shape": [], "data_offsets": [0, 4]}, "a": 1}', "twice"),
    ],
)
def test_a_damaged_header_is_refused(tmp_path: Path, header: Any, says: str) -> None:
    assert re.search(re.escape(says), refusal(write(tmp_path / "x.safetensors", header, b"\0" * 12)))


def test_a_git_lfs_pointer_is_named_as_one(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 548105171\n")
    assert "git lfs pull" in refusal(path)


def test_empty_tensors_and_no_tensors_are_fine(tmp_path: Path) -> None:
    save_file({"none": torch.empty(0, 4), "one": torch.tensor(2.0)}, tmp_path / "a.safetensors")
    file = SafetensorsFile(tmp_path / "a.safetensors")
    assert file.values(file.entries["none"], 0, 0).numel() == 0
    assert file.values(file.entries["one"], 0, 1).item() == 2.0
    save_file({}, tmp_path / "b.safetensors")
    assert SafetensorsFile(tmp_path / "b.safetensors").entries == {}
