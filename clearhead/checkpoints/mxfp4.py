"""Experts packed as MXFP4 (OCP Microscaling Formats 1.0, section 5.2), unpacked as they are read: published gpt-oss.

A tensor is two in the file: `NAME_blocks`, bytes (expert, row, block, 16) of two numbers, the first in the low half,
and `NAME_scales`, an exponent (expert, row, block) for 32 numbers. Rows are outputs, and the plain tensor that they
stand for is stored (expert, in, out). Every number of the format is one of bfloat16's too.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from clearhead.checkpoints.checkpoint import TensorInfo
from clearhead.checkpoints.packed import Packed, Parts

BLOCK = 32


def _pairs() -> Tensor:
    """For each byte, its two numbers side by side: a sign, two bits of exponent and one of mantissa. (256,) of int32"""
    half = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], dtype=torch.bfloat16)
    half = torch.cat([half, -half])
    byte = torch.arange(256)
    return torch.stack([half[byte & 15], half[byte >> 4]], dim=-1).view(torch.int32).flatten()


PAIRS = _pairs()


def unpack(blocks: Tensor, scales: Tensor) -> Tensor:
    """Numbers from bytes: n x 16 and n of them, as n x 32 in bfloat16, exactly.

    The scale is 2 to the power of its byte less 127; the byte 255 stands for no number.
    """
    numbers_N32 = torch.take(PAIRS, blocks.long()).view(torch.bfloat16)
    return numbers_N32.mul_(scales.view(torch.float8_e8m0fnu).to(torch.bfloat16)[:, None])


class MXFP4(Packed):
    """A checkpoint with experts in MXFP4. The names of its tensors say which are packed."""

    method = "mxfp4"
    understood: ClassVar = frozenset(("quant_method", "modules_to_not_convert", "dequantize"))

    def plain(self, tensors: dict[str, TensorInfo]) -> dict[str, Parts]:
        found = {}
        for packed in tensors:
            name = packed.removesuffix("_blocks")
            if not _is_pair(tensors, packed):
                continue
            n_experts, n_rows, n_blocks, _ = tensors[packed].shape
            shape = (n_experts, n_blocks * BLOCK, n_rows)
            info = TensorInfo(name=name, shape=shape, dtype="MXFP4", file=tensors[packed].file, turned=True)
            found[name] = Parts(info, packed, f"{name}_scales")
        return found

    def unpacked(self, name: str, begin: int, end: int) -> Tensor:
        blocks = self._inner._values(f"{name}_blocks", begin // 2, end // 2)
        scales = self._inner._values(f"{name}_scales", begin // BLOCK, end // BLOCK)
        return unpack(blocks.view(-1, BLOCK // 2), scales).view(-1)


def _is_pair(tensors: dict[str, TensorInfo], name: str) -> bool:
    """Whether `name` is that of blocks with the scales that belong to them."""
    blocks, scales = tensors[name], tensors.get(name.removesuffix("_blocks") + "_scales")
    if not name.endswith("_blocks") or scales is None or len(blocks.shape) != 4:
        return False
    fits = blocks.shape[-1] == BLOCK // 2 and scales.shape == blocks.shape[:-1]
    return fits and blocks.dtype == scales.dtype == torch.uint8
