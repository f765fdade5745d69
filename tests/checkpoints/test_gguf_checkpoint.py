"""GGUF files written by the `gguf` package, read by clearhead, and broken in every way."""

from __future__ import annotations

import struct
import tracemalloc
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFWriter, quants

from clearhead.checkpoints import open_checkpoint
from clearhead.errors import ClearheadError

TENSORS = {
    "token_embd.weight": np.random.default_rng(0).standard_normal((48, 64), dtype=np.float32),
    "blk.0.attn_q.weight": np.random.default_rng(1).standard_normal((32, 64), dtype=np.float32),
    "output_norm.weight": np.random.default_rng(2).standard_normal(64, dtype=np.float32),
}


def write(path: Path, tensors: dict[str, np.ndarray[Any, Any]] | None = None, split: tuple[int, int] = (0, 1)) -> Path:
    writer = GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_uint8("n.u8", 200)
    writer.add_int8("n.i8", -100)
    writer.add_uint16("n.u16", 60000)
    writer.add_int16("n.i16", -30000)
    writer.add_int32("n.i32", -5)
    writer.add_uint64("n.u64", 2**63 + 1)
    writer.add_int64("n.i64", -(2**60))
    writer.add_float32("n.f32", 0.25)
    writer.add_float64("n.f64", 0.1)
    writer.add_bool("n.true", True)
    writer.add_bool("n.false", False)
    writer.add_string("n.text", "na\u00efve \U0001f600 \n")
    writer.add_token_list(["<s>", "\u2581the", "\U0001f600", ""])
    writer.add_token_scores([0.0, -1.5, -2.0, 3.0])
    writer.add_array("n.bools", [True, False])
    writer.add_array("n.lists", [[1, 2], [3]])
    if split[1] > 1:
        writer.add_uint16("split.no", split[0])
        writer.add_uint16("split.count", split[1])
    for name, array in (TENSORS if tensors is None else tensors).items():
        writer.add_tensor(name, array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def good(tmp_path: Path) -> Path:
    return write(tmp_path / "tiny.gguf")


def refusal(path: Path) -> str:
    with pytest.raises(ClearheadError) as caught:
        open_checkpoint(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_tensors_equal_the_source_bit_for_bit(good: Path) -> None:
    """The file's part of case H20: rows come in the order they are stored in."""
    with open_checkpoint(good) as checkpoint:
        assert checkpoint.format == "gguf"
        assert checkpoint.where == str(good)
        assert checkpoint.sidecar_files == {}
        assert list(checkpoint.tensors) == list(TENSORS)
        for name, array in TENSORS.items():
            assert checkpoint.tensors[name].shape == array.shape  # torch's order, [out, in]
            assert torch.equal(checkpoint.read(name), torch.from_numpy(array))


def test_metadata_of_every_type_is_read(good: Path) -> None:
    with open_checkpoint(str(good)) as checkpoint:
        found = checkpoint.config
    assert found["general.architecture"] == "llama"
    assert found["llama.block_count"] == 1
    numbers = {key.removeprefix("n."): value for key, value in found.items() if key.startswith("n.")}
    assert numbers == {
        "u8": 200,
        "i8": -100,
        "u16": 60000,
        "i16": -30000,
        "i32": -5,
        "u64": 2**63 + 1,
        "i64": -(2**60),
        "f32": 0.25,
        "f64": 0.1,
        "true": True,
        "false": False,
        "text": "na\u00efve \U0001f600 \n",
        "bools": [True, False],
        "lists": [[1, 2], [3]],
    }
    assert type(numbers["true"]) is bool
    assert found["tokenizer.ggml.tokens"] == ["<s>", "\u2581the", "\U0001f600", ""]
    assert found["tokenizer.ggml.scores"] == [0.0, -1.5, -2.0, 3.0]


@pytest.mark.parametrize("version", [2, 3])
def test_versions(good: Path, version: int) -> None:
    data = bytearray(good.read_bytes())
    data[4:8] = struct.pack("<I", version)
    good.write_bytes(data)
    with open_checkpoint(good) as checkpoint:
        assert len(checkpoint.tensors) == len(TENSORS)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("turned", [False, True])
def test_quantised_tensors_are_dequantised_in_chunks_into_place(
    tmp_path: Path, dtype: torch.dtype, turned: bool
) -> None:
    values = np.random.default_rng(3).standard_normal((1100, 512), dtype=np.float32)
    raw = quants.quantize(values, GGMLQuantizationType.Q8_0)
    path = tmp_path / "q.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_tensor("x", raw, raw_dtype=GGMLQuantizationType.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    expected = torch.from_numpy(quants.dequantize(raw, GGMLQuantizationType.Q8_0))
    target = torch.zeros(512, 1100, dtype=dtype).t() if turned else torch.zeros(1100, 512, dtype=dtype)
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.tensors["x"].dtype == "Q8_0"
        assert checkpoint.tensors["x"].shape == (1100, 512)
        checkpoint.read_into("x", target)
        assert torch.equal(checkpoint.read("x"), expected)
    assert torch.equal(target, expected.to(dtype))


def test_a_split_file_is_read_whole(tmp_path: Path) -> None:
    names = [f"big-0000{number}-of-00003.gguf" for number in (1, 2, 3)]
    for number, (file, (name, array)) in enumerate(zip(names, TENSORS.items(), strict=True)):
        write(tmp_path / file, {name: array}, (number, 3))
    with open_checkpoint(tmp_path / names[0]) as checkpoint:
        assert all(torch.equal(checkpoint.read(name), torch.from_numpy(array)) for name, array in TENSORS.items())
    assert names[0] in refusal(tmp_path / names[1])
    (tmp_path / names[2]).unlink()
    assert names[2] in refusal(tmp_path / names[0])
    assert "name does not end" in refusal((tmp_path / names[0]).rename(tmp_path / "other.gguf"))


def test_a_file_cut_short_anywhere_is_refused(good: Path) -> None:
    data = good.read_bytes()
    with open_checkpoint(good) as checkpoint:
        end = max(entry.end for _, entry in checkpoint._places.values())  # type: ignore[attr-defined]
    for keep in [*range(0, 1200, 7), len(data) // 2, end - 1]:
        good.write_bytes(data[:keep])
        text = refusal(good)
        assert "ownload the file again" in text
        if keep > 8:
            assert str(keep) in text
    good.write_bytes(data[:end])
    open_checkpoint(good).close()


@pytest.mark.parametrize("at", [8, 16, 24], ids=["tensors", "metadata", "first key"])
@pytest.mark.parametrize("count", [2**60, 2**64 - 1, 10**6])
def test_absurd_counts_allocate_nothing(good: Path, at: int, count: int) -> None:
    data = bytearray(good.read_bytes())
    data[at : at + 8] = struct.pack("<Q", count)
    good.write_bytes(data)
    tracemalloc.start()
    text = refusal(good)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert "cut short, or damaged" in text
    assert peak < 1_000_000


def patched(path: Path, old: bytes, new: bytes) -> str:
    data = path.read_bytes()
    assert data.count(old) == 1
    path.write_bytes(data.replace(old, new))
    return refusal(path)


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def test_absurd_lengths_inside_lists_are_refused(good: Path) -> None:
    data = good.read_bytes()
    at = data.index("\u2581the".encode()) - 8
    good.write_bytes(data[:at] + struct.pack("<Q", 2**62) + data[at + 8 :])
    assert "tokenizer.ggml.tokens" in refusal(good)


def test_tensors_that_make_no_sense_are_refused(good: Path) -> None:
    data = good.read_bytes()
    name = text("output_norm.weight")
    old = name + struct.pack("<IQI", 1, 64, 0)

    def with_info(info: bytes) -> str:
        good.write_bytes(data)
        return patched(good, old, name + info)

    assert "cut short: expected" in with_info(struct.pack("<IQI", 1, 2**61, 0))
    assert "GGUF type 99" in with_info(struct.pack("<IQI", 1, 64, 99))
    assert "dimensions" in with_info(struct.pack("<IQI", 900, 64, 0))
    assert "block 256" in with_info(struct.pack("<IQI", 1, 64, 12))


def test_a_name_that_stands_twice_is_refused(tmp_path: Path) -> None:
    array = np.zeros(8, dtype=np.float32)
    assert "'one' stands in it twice" in patched(
        write(tmp_path / "a.gguf", {"one": array, "two": array}), b"two", b"one"
    )
    path = write(tmp_path / "b.gguf")
    assert "'n.i16' stands in it twice" in patched(path, b"n.u16", b"n.i16")


@pytest.mark.parametrize(
    ("version", "says"), [(1, "version 1"), (4, "version 4"), (3 << 24, "big endian")], ids=["1", "4", "big endian"]
)
def test_other_versions_are_refused(good: Path, version: int, says: str) -> None:
    data = bytearray(good.read_bytes())
    data[4:8] = struct.pack("<I", version)
    good.write_bytes(data)
    assert says in refusal(good)


def test_what_is_no_gguf_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"PK\x03\x04" + b"\0" * 100)
    assert "not a GGUF file" in refusal(path)
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\n")
    assert "git lfs pull" in refusal(path)


def test_overlapping_tensors_are_refused(good: Path) -> None:
    data = good.read_bytes()
    at = data.index(b"output_norm.weight") + len("output_norm.weight") + 4 + 8 + 4
    good.write_bytes(data[:at] + struct.pack("<Q", 64) + data[at + 8 :])
    assert "overlaps" in refusal(good)
    good.write_bytes(data[:at] + struct.pack("<Q", 65) + data[at + 8 :])
    assert "alignment" in refusal(good)


def test_the_real_file(gemma: Path) -> None:
    """Gemma 3 270M: its vocabulary, and one tensor of each type, against the `gguf` package."""
    with open_checkpoint(gemma) as checkpoint:
        assert checkpoint.config["general.architecture"] == "gemma3"
        assert len(checkpoint.config["tokenizer.ggml.tokens"]) == 262144
        assert checkpoint.config["tokenizer.ggml.tokens"][2] == "<bos>"
        assert checkpoint.tensors["token_embd.weight"].shape == (262144, 640)
        one_each = {info.dtype: name for name, info in checkpoint.tensors.items() if name != "token_embd.weight"}
        assert {"Q4_K", "Q5_0", "Q6_K", "Q8_0", torch.float32} == set(one_each)
        for kind, name in one_each.items():
            file, entry = checkpoint._places[name]  # type: ignore[attr-defined]
            raw = np.frombuffer(bytearray(file.data[entry.begin : entry.end]), dtype=np.uint8)
            number = GGMLQuantizationType[kind] if isinstance(kind, str) else GGMLQuantizationType.F32
            block, nbytes = gguf.GGML_QUANT_SIZES[number]
            rows = raw.reshape(-1, entry.shape[-1] // block * nbytes)
            expected = torch.from_numpy(quants.dequantize(rows, number)).view(entry.shape)
            assert torch.equal(checkpoint.read(name), expected), name
