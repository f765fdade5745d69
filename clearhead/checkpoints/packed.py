"""Checkpoints whose weights are packed in fewer bits, seen as plain ones: families know nothing of it."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from clearhead.checkpoints.checkpoint import Checkpoint, TensorInfo
from clearhead.errors import ClearheadError


class Packed(Checkpoint):
    """Another checkpoint with its packed tensors as plain ones, and its config as if they had always been."""

    method: ClassVar[str]
    """What the config calls this way of packing."""
    understood: ClassVar[frozenset[str]]
    """What may stand in the config beside it."""
    unquantised: ClassVar[torch.dtype] = torch.bfloat16

    def __init__(self, inner: Checkpoint) -> None:
        self._inner, self.format = inner, inner.format
        config = dict(inner.config)
        odd = sorted(config.pop("quantization_config").keys() - self.understood)
        if odd:
            inner.close()
            raise ClearheadError(
                f"{inner.where}/config.json: quantization_config says {', '.join(odd)}; of {self.method}, only "
                f"{', '.join(sorted(self.understood))} are understood"
            )
        self._packed = self.plain(inner.tensors)
        hidden = {part for parts in self._packed.values() for part in parts.parts}
        tensors = {name: info for name, info in inner.tensors.items() if name not in hidden}
        super().__init__(Path(inner.where), config, {**tensors, **{name: p.info for name, p in self._packed.items()}})

    @abstractmethod
    def plain(self, tensors: dict[str, TensorInfo]) -> dict[str, Parts]:
        """The plain tensors that packed ones stand for, by name."""

    @abstractmethod
    def unpacked(self, name: str, begin: int, end: int) -> Tensor:
        """Elements [begin, end) of a plain tensor as one row. Both are on a block."""

    def _values(self, name: str, begin: int, end: int) -> Tensor:
        return self.unpacked(name, begin, end) if name in self._packed else self._inner._values(name, begin, end)

    def _release(self, name: str, begin: int, end: int) -> None:
        if name not in self._packed:
            self._inner._release(name, begin, end)
            return
        whole = self._packed[name].info.numel
        for part in self._packed[name].parts:
            n = self._inner.tensors[part].numel
            self._inner._release(part, begin * n // whole, end * n // whole)

    def close(self) -> None:
        """Let go of the files."""
        self._inner.close()


class Parts:
    """A plain tensor, and the names of those in the file that it is unpacked from."""

    def __init__(self, info: TensorInfo, *parts: str) -> None:
        self.info = info
        self.parts = parts
