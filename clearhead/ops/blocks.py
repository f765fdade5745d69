"""Weights in blocks of few bits, as GGUF files have them: turned into float32, and made from it.

Each kind packs a block of 32 or 256 weights into a few bytes: one or two half-precision scales, perhaps a small
integer scale for each group, and the weights in 2 to 8 bits. Unpacking is bit for bit what the numpy code of the `gguf`
package does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


class Size(NamedTuple):
    """So many weights a block, in so many bytes."""

    block: int
    nbytes: int


SIZES = {
    "Q4_0": Size(32, 18),
    "Q4_1": Size(32, 20),
    "Q5_0": Size(32, 22),
    "Q5_1": Size(32, 24),
    "Q8_0": Size(32, 34),
    "Q2_K": Size(256, 84),
    "Q3_K": Size(256, 110),
    "Q4_K": Size(256, 144),
    "Q5_K": Size(256, 176),
    "Q6_K": Size(256, 210),
}
"""The kinds that are unpacked here."""


SCALES = {
    "Q4_1": (0, 2),
    "Q5_1": (0, 2),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
"""At which bytes of a block its half-precision scales stand; those not named have one, at the beginning."""


def scales(raw: Tensor, kind: str) -> list[Tensor]:
    """The half-precision scales of blocks: each kind of them as one row."""
    blocks = raw.view(-1, SIZES[kind].nbytes)
    return [blocks[:, at : at + 2].contiguous().view(torch.float16) for at in SCALES.get(kind, (0,))]


def unpack(raw_RC: Tensor, kind: str) -> Tensor:
    """Rows of whole blocks (uint8, R x bytes a row) as float32, R x weights a row. `kind` is a name in SIZES."""
    return UNPACK[kind](raw_RC.reshape(-1, SIZES[kind].nbytes)).view(raw_RC.shape[0], -1)


def _half(blocks: Tensor, at: int) -> Tensor:
    """The half-precision number at a byte of each block, as float32 (n, 1)."""
    return blocks[:, at : at + 2].contiguous().view(torch.float16).float()


def _nibbles(packed: Tensor, group: int) -> Tensor:
    """Bytes (n, c) in groups: each group's low halves, then its high halves. (n, c / group, 2, group)"""
    n, count = packed.shape
    out = torch.empty(n, count // group, 2, group, dtype=torch.uint8)
    grouped = packed.reshape(n, count // group, group)
    torch.bitwise_and(grouped, 15, out=out[:, :, 0])
    torch.bitwise_right_shift(grouped, 4, out=out[:, :, 1])
    return out


def _bits(packed: Tensor, width: int, group: int) -> Tensor:
    """Bytes (n, c) in groups: each group's lowest `width` bits, then the next. (n, c / group, 8 / width, group)"""
    n, count = packed.shape
    grouped = packed.reshape(n, count // group, group)
    out = torch.empty(n, count // group, 8 // width, group, dtype=torch.uint8)
    for place in range(8 // width):
        torch.bitwise_right_shift(grouped, place * width, out=out[:, :, place])
    return out.bitwise_and_((1 << width) - 1)


def _fifth_bit_table() -> Tensor:
    """For each byte, its eight bits as eight bytes of 0 or 16, in one 64-bit number. (256,)"""
    shifts = torch.arange(8, dtype=torch.uint8)
    bits = torch.arange(256, dtype=torch.uint8).unsqueeze(-1).bitwise_right_shift(shifts).bitwise_and_(1)
    return bits.bitwise_left_shift_(4).view(torch.int64).flatten()


FIFTH_BITS = _fifth_bit_table()


def _fifth_bits(packed: Tensor) -> Tensor:
    """Four bytes a block as 32 bits, each in the place of value 16. (n, 32). A table is faster than shifts."""
    return torch.take(FIFTH_BITS, packed.long()).view(torch.uint8)


def _signed(packed: Tensor, offset: int) -> Tensor:
    """Unsigned bytes less an offset, as float32: exact, as all are small integers."""
    return packed.float().sub_(offset)


def _q4_0(blocks: Tensor) -> Tensor:
    return _signed(_nibbles(blocks[:, 2:], 16).flatten(1), 8).mul_(_half(blocks, 0))


def _q4_1(blocks: Tensor) -> Tensor:
    return _nibbles(blocks[:, 4:], 16).flatten(1).float().mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def _q5_0(blocks: Tensor) -> Tensor:
    low = _nibbles(blocks[:, 6:], 16).flatten(1)
    return _signed(low.bitwise_or_(_fifth_bits(blocks[:, 2:6])), 16).mul_(_half(blocks, 0))


def _q5_1(blocks: Tensor) -> Tensor:
    low = _nibbles(blocks[:, 8:], 16).flatten(1)
    q = low.bitwise_or_(_fifth_bits(blocks[:, 4:8])).float()
    return q.mul_(_half(blocks, 0)).add_(_half(blocks, 2))


def _q8_0(blocks: Tensor) -> Tensor:
    return blocks[:, 2:].view(torch.int8).float().mul_(_half(blocks, 0))


def _q2_k(blocks: Tensor) -> Tensor:
    scales = blocks[:, :16]
    scale = (scales & 15).float().mul_(_half(blocks, 80))
    least = (scales >> 4).float().mul_(_half(blocks, 82))
    q = _bits(blocks[:, 16:80], 2, 32).view(-1, 16, 16).float()
    return q.mul_(scale.unsqueeze(-1)).sub_(least.unsqueeze(-1))


def _q3_k(blocks: Tensor) -> Tensor:
    low = _nibbles(blocks[:, 96:104], 8).flatten(1)
    high = _bits(blocks[:, 104:108], 2, 4).flatten(1)
    scale = _signed(low.bitwise_or_(high.bitwise_left_shift_(4)), 32).mul_(_half(blocks, 108))
    # The third bit is stored inverted: where it is missing, 4 is taken away.
    third = _bits(blocks[:, :32], 1, 32).bitwise_left_shift_(2)
    q = _bits(blocks[:, 32:96], 2, 32).view(-1, 16, 16).bitwise_or_(third.view(-1, 16, 16))
    return _signed(q, 4).mul_(scale.unsqueeze(-1))


def _group_scales(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Twelve bytes as eight scales and eight minima of six bits each, as float32 (n, 8)."""
    a, b, c = packed[:, :4], packed[:, 4:8], packed[:, 8:12]
    scales = torch.cat([a & 63, (c & 15) | ((a >> 2) & 48)], dim=1)
    minima = torch.cat([b & 63, (c >> 4) | ((b >> 2) & 48)], dim=1)
    return scales.float(), minima.float()


def _q4_k(blocks: Tensor) -> Tensor:
    scales, minima = _group_scales(blocks[:, 4:16])
    q = _nibbles(blocks[:, 16:], 32).view(-1, 8, 32).float()
    scale, least = scales.mul_(_half(blocks, 0)), minima.mul_(_half(blocks, 2))
    return q.mul_(scale.unsqueeze(-1)).sub_(least.unsqueeze(-1))


def _q5_k(blocks: Tensor) -> Tensor:
    scales, minima = _group_scales(blocks[:, 4:16])
    high = _bits(blocks[:, 16:48], 1, 32).bitwise_left_shift_(4).view(-1, 8, 32)
    q = _nibbles(blocks[:, 48:], 32).view(-1, 8, 32).bitwise_or_(high).float()
    scale, least = scales.mul_(_half(blocks, 0)), minima.mul_(_half(blocks, 2))
    return q.mul_(scale.unsqueeze(-1)).sub_(least.unsqueeze(-1))


def _q6_k(blocks: Tensor) -> Tensor:
    low = _nibbles(blocks[:, :128], 64).view(-1, 8, 32)
    high = _bits(blocks[:, 128:192], 2, 32).bitwise_left_shift_(4).view(-1, 8, 32)
    scale = blocks[:, 192:208].view(torch.int8).float().mul_(_half(blocks, 208))
    return _signed(low.bitwise_or_(high), 32).view(-1, 16, 16).mul_(scale.unsqueeze(-1))


UNPACK: dict[str, Callable[[Tensor], Tensor]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
"""Blocks (n x bytes of a block, uint8) to float32 of any shape with n x block elements."""
