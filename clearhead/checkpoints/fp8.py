"""Matrices in eight bits with a scale a square (DeepSeek-AI 2024, DeepSeek-V3, section 3.3.2), unpacked as they are
read: published DeepSeek-V3.

Beside `NAME` in float8 (out, in) stands `NAME_scale_inv` in float32, one number for each square of `weight_block_size`
of it; what does not fill its last squares is cut off. The plain number is the product of the two.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from clearhead.checkpoints.checkpoint import Checkpoint, TensorInfo
from clearhead.checkpoints.packed import Packed, Parts
from clearhead.errors import ClearheadError

SCALE = "_scale_inv"


class FP8(Packed):
    """A checkpoint with matrices in eight bits. The scales beside them say which."""

    method = "fp8"
    understood: ClassVar = frozenset(
        ("quant_method", "activation_scheme", "fmt", "weight_block_size", "modules_to_not_convert", "dequantize")
    )

    def __init__(self, inner: Checkpoint) -> None:
        square = inner.config["quantization_config"].get("weight_block_size", [128, 128])
        if not isinstance(square, list) or len(square) != 2 or not all(isinstance(n, int) and n > 0 for n in square):
            inner.close()
            raise ClearheadError(f"{inner.where}/config.json: weight_block_size is {square!r}; give [rows, columns]")
        self._square = square
        super().__init__(inner)

    def plain(self, tensors: dict[str, TensorInfo]) -> dict[str, Parts]:
        found = {}
        for name, info in tensors.items():
            scales = tensors.get(name + SCALE)
            if scales is None or len(info.shape) != 2:
                continue
            n_squares = tuple(-(-n // side) for n, side in zip(info.shape, self._square, strict=True))
            if scales.shape != n_squares:
                raise ClearheadError(
                    f"{scales.file}: {scales.name!r} has shape {list(scales.shape)}, and {name!r} has "
                    f"{list(n_squares)} squares of {self._square}"
                )
            plain = TensorInfo(name=name, shape=info.shape, dtype="FP8", file=info.file)
            found[name] = Parts(plain, name, scales.name)
        return found

    def unpacked(self, name: str, begin: int, end: int) -> Tensor:
        packed = self._inner._values(name, begin, end).float()
        n_columns = self._inner.tensors[name].shape[1]
        scales = self._inner.tensors[name + SCALE]
        place = torch.arange(begin, end)
        row, column = place // n_columns // self._square[0], place % n_columns // self._square[1]
        values = self._inner._values(scales.name, 0, scales.numel)
        return packed.mul_(values[row * scales.shape[1] + column])

    def _release(self, name: str, begin: int, end: int) -> None:
        # The scales are few, and every chunk may need any of them.
        self._inner._release(name, begin, end)
