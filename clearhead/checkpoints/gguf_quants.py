"""GGUF's quantised blocks turned back into float32, bit for bit as the `gguf` package's numpy code does.

Each type packs a block of weights into a few bytes: one or two half-precision scales, perhaps a small integer scale
for each group, and the weights in 2 to 8 bits. The usual ones are unpacked by torch; the rare ones, which need large
tables, are left to the `gguf` package, a chunk at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.errors import ClearheadError


@dataclass(frozen=True)
class GGMLType:
    """A type of GGUF: so many weights a block, in so many bytes; `dtype` where it is a plain one of torch's."""

    name: str
    block: int
    nbytes: int
    dtype: torch.dtype | None = None


TYPES = {
    0: GGMLType("F32", 1, 4, torch.float32),
    1: GGMLType("F16", 1, 2, torch.float16),
    2: GGMLType("Q4_0", 32, 18),
    3: GGMLType("Q4_1", 32, 20),
    6: GGMLType("Q5_0", 32, 22),
    7: GGMLType("Q5_1", 32, 24),
    8: GGMLType("Q8_0", 32, 34),
    10: GGMLType("Q2_K", 256, 84),
    11: GGMLType("Q3_K", 256, 110),
    12: GGMLType("Q4_K", 256, 144),
    13: GGMLType("Q5_K", 256, 176),
    14: GGMLType("Q6_K", 256, 210),
    16: GGMLType("IQ2_XXS", 256, 66),
    17: GGMLType("IQ2_XS", 256, 74),
    18: GGMLType("IQ3_XXS", 256, 98),
    19: GGMLType("IQ1_S", 256, 50),
    20: GGMLType("IQ4_NL", 32, 18),
    21: GGMLType("IQ3_S", 256, 110),
    22: GGMLType("IQ2_S", 256, 82),
    23: GGMLType("IQ4_XS", 256, 136),
    24: GGMLType("I8", 1, 1, torch.int8),
    25: GGMLType("I16", 1, 2, torch.int16),
    26: GGMLType("I32", 1, 4, torch.int32),
    27: GGMLType("I64", 1, 8, torch.int64),
    28: GGMLType("F64", 1, 8, torch.float64),
    29: GGMLType("IQ1_M", 256, 56),
    30: GGMLType("BF16", 1, 2, torch.bfloat16),
    34: GGMLType("TQ1_0", 256, 54),
    35: GGMLType("TQ2_0", 256, 66),
    39: GGMLType("MXFP4", 32, 17),
    40: GGMLType("NVFP4", 64, 36),
}
"""GGML's numbers of the types that can be read. Quantisations of activations (Q8_1, Q8_K) are not among them."""

BY_NAME = {kind.name: kind for kind in TYPES.values()}


def dequantise(raw_RC: Tensor, kind: str, n_columns: int) -> Tensor:
    """Rows of packed bytes (uint8, R x bytes a row) as float32 (R x `n_columns`). `kind` is a name in TYPES."""
    if kind not in BY_NAME:
        raise ClearheadError(f"{kind} is not a GGUF type that can be dequantised: {', '.join(BY_NAME)}")
    size = BY_NAME[kind]
    rows = raw_RC.shape[0]
    if n_columns % size.block or raw_RC.shape[1] != n_columns // size.block * size.nbytes:
        raise ClearheadError(f"{raw_RC.shape[1]} bytes are not a row of {n_columns} weights in {kind}")
    if size.dtype is not None:
        return raw_RC.contiguous().view(size.dtype).float()
    blocks = raw_RC.reshape(-1, size.nbytes)
    unpack = UNPACK.get(kind)
    out = _by_package(blocks, kind) if unpack is None else unpack(blocks)
    return out.view(rows, n_columns)


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


def _by_package(blocks: Tensor, kind: str) -> Tensor:
    """The rare types, by the `gguf` package: it takes a while to import, so only when it is needed."""
    from gguf import GGMLQuantizationType, quants

    values = quants.dequantize(blocks.contiguous().numpy(), GGMLQuantizationType[kind])
    return torch.from_numpy(values).float()
