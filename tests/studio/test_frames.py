"""JSON is strict both ways, and what is packed is unpacked, at the places the description of a frame says."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
import torch

from clearhead.errors import ClearheadError, UsageError
from clearhead.studio.frames import dumps, pack, pack_end, pack_error, parse, unpack
from clearhead.studio.operations import Answer


def packed(answer: Answer, **how: object) -> bytes:
    return pack(answer, **{"id": "a", "seq": 7, "ms": 1.5, "last": True, **how})  # type: ignore[arg-type]


def test_a_frame_byte_by_byte() -> None:
    answer = Answer(data={"x": 1}, arrays={"a": torch.tensor([1.0, -2.0, 0.5]), "b": np.array([[3, 4]], np.uint8)})
    frame = packed(answer)
    magic, seq, n_words, n_payload = struct.unpack_from("<4I", frame)
    assert (magic, seq) == (0x43484C44, 7)
    begin = 16 + n_words
    assert begin % 8 == 0 and len(frame) == begin + n_payload
    told = json.loads(frame[16:begin])
    assert told == {
        "id": "a",
        "seq": 7,
        "ms": 1.5,
        "last": True,
        "data": {"x": 1},
        "python": "",
        "printed": [],
        "arrays": [
            {"name": "a", "shape": [3], "dtype": "f32", "offset": 0},
            {"name": "b", "shape": [1, 2], "dtype": "u8", "offset": 16},
        ],
    }
    assert struct.unpack_from("<3f", frame, begin) == (1.0, -2.0, 0.5)
    assert frame[begin + 16 : begin + 18] == b"\x03\x04"


@pytest.mark.parametrize("length", range(9))
def test_the_payload_begins_at_a_multiple_of_8_however_long_the_words_are(length: int) -> None:
    told, arrays = unpack(packed(Answer(data={"x": "y" * length}, arrays={"a": torch.arange(5.0)})))
    assert told["data"]["x"] == "y" * length
    assert arrays["a"].tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("array", "dtype"),
    [
        (torch.arange(6, dtype=torch.float64).reshape(2, 3).T, np.float32),
        (torch.arange(4, dtype=torch.bfloat16), np.float32),
        (torch.arange(4, dtype=torch.float16), np.float32),
        (torch.ones(2, 2, requires_grad=True), np.float32),
        (torch.tensor([True, False]), np.uint8),
        (torch.tensor([0, 255], dtype=torch.uint8), np.uint8),
        (torch.tensor([-(2**31), 2**31 - 1]), np.int32),
        (np.arange(4, dtype=np.int8), np.int32),
        (torch.zeros(0, 3), np.float32),
        (torch.tensor(2.5), np.float32),
        (np.asfortranarray(np.arange(6.0).reshape(2, 3)), np.float32),
    ],
)
def test_arrays_come_back_as_one_of_three_kinds(array: torch.Tensor | np.ndarray, dtype: type) -> None:
    _, arrays = unpack(packed(Answer(arrays={"a": array})))
    expected = array.detach().double().numpy() if isinstance(array, torch.Tensor) else array
    assert arrays["a"].dtype == dtype and arrays["a"].shape == expected.shape
    np.testing.assert_array_equal(arrays["a"], expected)


def test_a_whole_number_that_does_not_fit_is_no_answer() -> None:
    with pytest.raises(ValueError, match="32 bits"):
        packed(Answer(arrays={"a": torch.tensor([2**31])}))
    with pytest.raises(TypeError, match="complex"):
        packed(Answer(arrays={"a": torch.zeros(1, dtype=torch.complex64).numpy()}))


def test_an_answer_has_a_limit() -> None:
    with pytest.raises(ClearheadError, match="larger than 1 MiB; ask for fewer"):
        packed(Answer(arrays={"a": torch.zeros(1 << 18), "b": torch.zeros(1)}), limit=1 << 20)


def test_numbers_that_are_none_become_null_in_words_and_stay_in_arrays() -> None:
    bad = float("nan")
    data = {"a": bad, "b": [float("inf"), (1, {"c": np.float32("nan")})], "d": torch.tensor([1.0, -torch.inf])}
    told, arrays = unpack(packed(Answer(data=data, arrays={"x": torch.tensor([-torch.inf])}, printed=(bad, 1.0))))
    assert told["data"] == {"a": None, "b": [None, [1, {"c": None}]], "d": [1.0, None]}
    assert told["printed"] == [None, 1.0]
    assert arrays["x"].tolist() == [-np.inf]


def test_words_are_ascii_whatever_they_say() -> None:
    hostile = "<script>\u202e\ud83d\x00\u2028é😀"
    written = dumps({"x": hostile, "y": np.int64(3), "z": torch.tensor(0.5)})
    assert written.isascii()
    assert json.loads(written) == {"x": hostile, "y": 3, "z": 0.5}


def test_ends_and_errors() -> None:
    assert unpack(pack_end(id="a", seq=3, ms=2.0)) == ({"id": "a", "seq": 3, "ms": 2.0, "last": True}, {})
    told, _ = unpack(pack_error("no", id="", seq=0))
    assert told == {"id": "", "seq": 0, "last": True, "error": "no"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ('{"x": NaN}', "NaN is no number"),
        ('{"x": -Infinity}', "-Infinity is no number"),
        ('{"x": 1e999}', "too large"),
        ("9" * 5000, "not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ("[" * 100 + "]" * 100, "nested too deeply"),
        ('{"a":' * 40 + "1" + "}" * 40, "nested too deeply"),
        (b"\xff\xfe\xfd", "not JSON"),
    ],
)
def test_json_that_is_refused(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why) as refused:
        parse(text)
    assert len(str(refused.value)) < 200


def test_json_that_is_taken() -> None:
    value = {"a": [1, -2.5, True, None, "é\ud800"], "b": {"c": []}}
    assert parse(json.dumps(value)) == value
    assert parse("[" * 31 + "1" + "]" * 31)


def test_what_is_no_frame_is_not_unpacked() -> None:
    frame = packed(Answer(arrays={"a": torch.zeros(2)}))
    for wrong in (frame[:-1], b"\0" + frame[1:], frame + b"\0"):
        with pytest.raises(ValueError, match="not a frame"):
            unpack(wrong)
