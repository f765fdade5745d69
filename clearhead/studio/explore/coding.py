"""Numbers as bytes: shares in the square root, which keeps small ones apart; everything else as it is."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Code = Literal["u8sqrt", "f16", "f32"]
Kind = Literal["u8", "f16", "f32"]
"""What numbers travel as."""

STEPS = 255


def encode(share: Tensor) -> Tensor:
    """Shares from 0 to 1 as bytes, round(255 sqrt(x)): at most 1/510 away in the square root. A cell that is exactly
    zero is 0, and every other at least 1, so that what is masked can be told from what is small.
    """
    code = share.clamp(0, 1).sqrt().mul(STEPS).round()
    return torch.where(share > 0, code.clamp(min=1), code).to(torch.uint8)


def decode(code: Tensor) -> Tensor:
    """The shares that bytes stand for, as float32."""
    return (code.float() / STEPS).square()


def pooled(map_TS: Tensor, factor: int) -> Tensor:
    """(..., T, S) by its largest cell in each square of `factor`, (..., ceil(T/f), ceil(S/f)): spikes stay."""
    if factor <= 1:
        return map_TS
    lead, (height, width) = map_TS.shape[:-2], map_TS.shape[-2:]
    # Byte by byte and map by map: a float copy of a large stack of maps would take more than the maps do.
    maps = map_TS.reshape(-1, 1, height, width)
    out = [F.max_pool2d(one[None].float(), factor, ceil_mode=True)[0].to(map_TS.dtype) for one in maps]
    return torch.stack(out).reshape(*lead, *out[0].shape[-2:])


def as_bytes(values: Tensor, code: Code) -> tuple[bytes, Kind]:
    """Little-endian in C order, and what they are: `u8`, `f16`, `f32`."""
    if code == "u8sqrt":
        values = values if values.dtype == torch.uint8 else encode(values)
        return values.contiguous().numpy().tobytes(), "u8"
    numbers = values.float().contiguous().numpy()
    if code == "f16":
        return numpy_bytes(numbers.astype("<f2")), "f16"
    return numpy_bytes(numbers.astype("<f4")), "f32"


def numpy_bytes(array: object) -> bytes:
    """The bytes of an array."""
    data: bytes = array.tobytes()  # type: ignore[attr-defined]
    return data
