"""Experts packed as MXFP4 (OCP Microscaling Formats 1.0, section 5.2), unpacked as they are read: published gpt-oss.

A tensor is two in the file: `NAME_blocks`, bytes (expert, row, block, 16) of two numbers, the first in the low half,
and `NAME_scales`, an exponent (expert, row, block) for 32 numbers. Rows are outputs, and the plain tensor that they
stand for is stored (expert, in, out). Every number of the format is one of bfloat16's too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from clearhead.checkpoints.checkpoint import Checkpoint, TensorInfo
from clearhead.errors import ClearheadError

METHOD, BLOCK = "mxfp4", 32
UNDERSTOOD = frozenset(("quant_method", "modules_to_not_convert", "dequantize"))
"""What may stand in a config beside it: the names of the tensors say which are packed."""


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


class Unpacking(Checkpoint):
    """Another checkpoint with its packed tensors as plain ones, and its config as if they had always been."""

    unquantised: ClassVar[torch.dtype] = torch.bfloat16

    def __init__(self, inner: Checkpoint) -> None:
        self._inner, self.format = inner, inner.format
        config, tensors = dict(inner.config), dict(inner.tensors)
        odd = sorted(config.pop("quantization_config").keys() - UNDERSTOOD)
        if odd:
            inner.close()
            raise ClearheadError(
                f"{inner.where}/config.json: quantization_config says {', '.join(odd)}; of {METHOD}, only "
                f"{', '.join(sorted(UNDERSTOOD))} are understood"
            )
        self._packed = {name.removesuffix("_blocks") for name in tensors if _is_pair(tensors, name)}
        for name in self._packed:
            blocks = tensors.pop(f"{name}_blocks")
            del tensors[f"{name}_scales"]
            n_experts, n_rows, n_blocks, _ = blocks.shape
            shape = (n_experts, n_blocks * BLOCK, n_rows)
            tensors[name] = TensorInfo(name=name, shape=shape, dtype="MXFP4", file=blocks.file, turned=True)
        super().__init__(Path(inner.where), config, tensors)

    def _values(self, name: str, begin: int, end: int) -> Tensor:
        if name not in self._packed:
            return self._inner._values(name, begin, end)
        blocks = self._inner._values(f"{name}_blocks", begin // 2, end // 2)
        scales = self._inner._values(f"{name}_scales", begin // BLOCK, end // BLOCK)
        return unpack(blocks.view(-1, BLOCK // 2), scales).view(-1)

    def _release(self, name: str, begin: int, end: int) -> None:
        if name not in self._packed:
            self._inner._release(name, begin, end)
            return
        self._inner._release(f"{name}_blocks", begin // 2, end // 2)
        self._inner._release(f"{name}_scales", begin // BLOCK, end // BLOCK)

    def close(self) -> None:
        """Let go of the files."""
        self._inner.close()


def unpacking(checkpoint: Checkpoint) -> Checkpoint:
    """The checkpoint as one of plain tensors, where its config says that it is packed in this way."""
    said: Any = checkpoint.config.get("quantization_config")
    packed = isinstance(said, dict) and said.get("quant_method") == METHOD
    return Unpacking(checkpoint) if packed else checkpoint


def _is_pair(tensors: dict[str, TensorInfo], name: str) -> bool:
    """Whether `name` is that of blocks with the scales that belong to them."""
    blocks, scales = tensors[name], tensors.get(name.removesuffix("_blocks") + "_scales")
    if not name.endswith("_blocks") or scales is None or len(blocks.shape) != 4:
        return False
    fits = blocks.shape[-1] == BLOCK // 2 and scales.shape == blocks.shape[:-1]
    return fits and blocks.dtype == scales.dtype == torch.uint8
