"""Bytes on the wire: strict JSON in both directions, and frames that carry JSON and tensors together.

A frame is four little-endian u32 (magic, seq, length of the JSON, length of the payload), the JSON, padded with spaces
so that the payload begins at a multiple of 8, and the payload: each array in C order, at a multiple of 8.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import torch

from clearhead.errors import ClearheadError, UsageError
from clearhead.studio.operations import Answer

MAGIC = 0x43484C44
HEADER = struct.Struct("<4I")
MAX_DEPTH = 32
BYTES = (torch.uint8, torch.bool, np.uint8, np.bool_)
"""What takes one byte a number; all else travels as four."""


def parse(text: str | bytes) -> Any:
    """JSON from a browser.

    Raises:
        UsageError: it is not JSON, is nested too deeply, or holds a number that is not finite.
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise UsageError("the request is nested too deeply") from None
    except (ValueError, UnicodeDecodeError) as problem:
        raise UsageError(f"the request is not JSON: {str(problem)[:120]}") from None
    if _depth(value) > MAX_DEPTH:
        raise UsageError("the request is nested too deeply")
    return value


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number of JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text[:40]} is too large")
    return number


def _depth(value: Any) -> int:
    """How deep lists and objects are nested, counted without recursion and given up on beyond the limit."""
    level, depth = [value], 0
    while level and depth <= MAX_DEPTH:
        inner: list[Any] = []
        for one in level:
            inner += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        level, depth = [one for one in inner if isinstance(one, dict | list)], depth + 1
    return depth


def dumps(value: Any) -> str:
    """JSON that every browser reads: ASCII alone, so that no half of a surrogate pair is left bare, and never NaN or
    Infinity, which become null.
    """
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"), default=_plain)
    except ValueError:
        return json.dumps(_without_nan(value), allow_nan=False, separators=(",", ":"))


def _plain(value: Any) -> Any:
    """Numbers and lists that only numpy and torch know."""
    if isinstance(value, torch.Tensor | np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"a {type(value).__name__} can't be sent as JSON")


def _without_nan(value: Any) -> Any:
    match value:
        case float():
            return float(value) if math.isfinite(value) else None
        case Mapping():
            return {key: _without_nan(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_without_nan(inner) for inner in value]
        case torch.Tensor() | np.ndarray() | np.generic():
            return _without_nan(value.tolist())
    return value


def pack(answer: Answer, *, id: str, seq: int, ms: float, last: bool, limit: int = 256 << 20) -> bytes:
    """One answer as a frame.

    Raises:
        ClearheadError: it is larger than `limit` bytes.
    """
    arrays, pieces, offset = [], [], 0
    for name, array in answer.arrays.items():
        if offset + math.prod(array.shape) * (1 if array.dtype in BYTES else 4) > limit:
            raise ClearheadError(
                f"the answer is larger than {limit >> 20} MiB; ask for fewer tokens, or for part of the tensor"
            )
        kind, values = _coded(name, array)
        arrays.append({"name": name, "shape": list(values.shape), "dtype": kind, "offset": offset})
        pieces.append(values.tobytes())
        gap = -values.nbytes % 8
        pieces.append(bytes(gap))
        offset += values.nbytes + gap
    told = {
        "id": id,
        "seq": seq,
        "ms": ms,
        "last": last,
        "data": answer.data,
        "python": answer.python,
        "printed": answer.printed,
        "arrays": arrays,
    }
    return _frame(seq, told, b"".join(pieces))


def pack_end(*, id: str, seq: int, ms: float) -> bytes:
    """The frame that says that a long computation has given its last answer: one without data."""
    return _frame(seq, {"id": id, "seq": seq, "ms": ms, "last": True})


def pack_error(message: str, *, id: str, seq: int) -> bytes:
    """The frame that says what was refused, or went wrong."""
    return _frame(seq, {"id": id, "seq": seq, "last": True, "error": message})


def _frame(seq: int, told: Mapping[str, Any], payload: bytes = b"") -> bytes:
    words = dumps(told).encode("ascii")
    words += b" " * (-(HEADER.size + len(words)) % 8)
    return HEADER.pack(MAGIC, seq, len(words), len(payload)) + words + payload


def unpack(frame: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """What a frame says, and its arrays: the browser's part, for tests and tools."""
    magic, seq, n_words, n_payload = HEADER.unpack_from(frame)
    begin = HEADER.size + n_words
    if magic != MAGIC or len(frame) != begin + n_payload or begin % 8:
        raise ValueError("not a frame")
    told = json.loads(frame[HEADER.size : begin], parse_constant=_refuse)
    if told["seq"] != seq:
        raise ValueError("a frame whose two numbers differ")
    arrays = {}
    for one in told.get("arrays", ()):
        kind = {"f32": np.float32, "i32": np.int32, "u8": np.uint8}[one["dtype"]]
        count = math.prod(one["shape"])
        arrays[one["name"]] = np.frombuffer(frame, kind, count, begin + one["offset"]).reshape(one["shape"])
    return told, arrays


def _coded(name: str, array: torch.Tensor | np.ndarray) -> tuple[str, np.ndarray]:
    """The array as one of the three kinds that travel."""
    if isinstance(array, torch.Tensor):
        array = array.detach().cpu()
        array = (array.float() if array.is_floating_point() else array).numpy()
    if array.dtype.kind == "f":
        return "f32", np.asarray(array, "<f4", order="C")
    if array.dtype == np.uint8 or array.dtype.kind == "b":
        return "u8", np.asarray(array, np.uint8, order="C")
    if array.dtype.kind in "iu":
        if array.size and (array.max() > 0x7FFFFFFF or array.min() < -0x80000000):
            raise ValueError(f"{name} has a number beyond 32 bits")
        return "i32", np.asarray(array, "<i4", order="C")
    raise TypeError(f"{name} holds {array.dtype}, which does not travel")
