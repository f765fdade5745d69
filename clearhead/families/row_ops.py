"""What a row does with the tensors of a file: operations that can be undone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor

from clearhead.config import AttentionConfig, TransformerConfig, TwoTowersConfig

Shape = tuple[int, ...]
Config = TransformerConfig | TwoTowersConfig


@runtime_checkable
class Op(Protocol):
    """How the tensors of one row differ between file and modules. `save` undoes `load` bit for bit."""

    @property
    def moves_rows(self) -> bool:
        """Whether it only moves whole rows (..., width), so that rows packed in fewer bytes are moved alike."""
        ...

    def load(self, files: list[Tensor], shapes: list[Shape], config: Config) -> list[Tensor]:
        """The parameters (of `shapes`), from the file's tensors."""
        ...

    def save(self, parameters: list[Tensor], config: Config) -> list[Tensor]:
        """The file's tensors, from the parameters."""
        ...

    def file_shapes(self, shapes: list[Shape]) -> list[Shape]:
        """The shapes the file's tensors must have for parameters of `shapes`."""
        ...

    def views(self, parameters: list[Tensor]) -> list[Tensor] | None:
        """The parameters seen as the file's tensors, to read straight into; None where they can't be."""
        ...


@dataclass(frozen=True)
class Same:
    """One tensor, as it is."""

    moves_rows: ClassVar[bool] = True

    def load(self, files: list[Tensor], shapes: list[Shape], config: Config) -> list[Tensor]:
        return files

    def save(self, parameters: list[Tensor], config: Config) -> list[Tensor]:
        return parameters

    def file_shapes(self, shapes: list[Shape]) -> list[Shape]:
        return shapes

    def views(self, parameters: list[Tensor]) -> list[Tensor] | None:
        return parameters


@dataclass(frozen=True)
class Tied(Same):
    """One tensor, as it is; where the model ties it to `parameter`, the file may leave it out."""

    parameter: str = ""


@dataclass(frozen=True)
class Stack:
    """One tensor a number that only the file counts (`{e}`: its experts); here they lie along a first dimension."""

    moves_rows: ClassVar[bool] = True

    def load(self, files: list[Tensor], shapes: list[Shape], config: Config) -> list[Tensor]:
        return [torch.stack(files)]

    def save(self, parameters: list[Tensor], config: Config) -> list[Tensor]:
        return list(parameters[0].unbind(0))

    def file_shapes(self, shapes: list[Shape]) -> list[Shape]:
        return [shapes[0][1:]] * shapes[0][0]

    def views(self, parameters: list[Tensor]) -> list[Tensor] | None:
        return list(parameters[0].unbind(0))


@dataclass(frozen=True)
class Joined(Stack):
    """One tensor of shape (1, 1, width) a word, which stands in the file's name for `{w}`; here they are rows."""

    moves_rows: ClassVar[bool] = False
    words: tuple[str, ...]

    def load(self, files: list[Tensor], shapes: list[Shape], config: Config) -> list[Tensor]:
        return [torch.cat(files, dim=1)[0]]

    def save(self, parameters: list[Tensor], config: Config) -> list[Tensor]:
        return self.views(parameters)

    def file_shapes(self, shapes: list[Shape]) -> list[Shape]:
        return [(1, 1, shapes[0][1])] * shapes[0][0]

    def views(self, parameters: list[Tensor]) -> list[Tensor]:
        return [row[None, None] for row in parameters[0].unbind(0)]


@dataclass(frozen=True)
class Concat:
    """One tensor in the file holds several parameters, one after another along `dim`.

    `transposed`: the file stores (in, out), as GPT-2's "Conv1D" does.
    """

    transposed: bool = False
    dim: int = 0

    @property
    def moves_rows(self) -> bool:
        return self.dim == 0 and not self.transposed

    def load(self, files: list[Tensor], shapes: list[Shape], config: Config) -> list[Tensor]:
        return list(self._turned(files[0]).split([shape[self.dim] for shape in shapes], dim=self.dim))

    def save(self, parameters: list[Tensor], config: Config) -> list[Tensor]:
        return [self._turned(torch.cat(parameters, dim=self.dim)).contiguous()]

    def file_shapes(self, shapes: list[Shape]) -> list[Shape]:
        whole = list(shapes[0])
        whole[self.dim] = sum(shape[self.dim] for shape in shapes)
        if self.transposed and len(whole) > 1:
            whole[-2:] = whole[:-3:-1]
        return [tuple(whole)]

    def views(self, parameters: list[Tensor]) -> list[Tensor] | None:
        return None if len(parameters) > 1 else [self._turned(parameters[0])]

    def _turned(self, whole: Tensor) -> Tensor:
        return whole.transpose(-1, -2) if self.transposed and whole.ndim > 1 else whole


Transpose = Concat(transposed=True)
"""Matrices, stored (in, out)."""


class _Computed:
    """The base of those whose parameters are not views of the file's tensors, one tensor of the same shape."""

    moves_rows: ClassVar[bool] = False

    def file_shapes(self, shapes: list[Shape]) -> list[Shape]:
        return shapes

    def views(self, parameters: list[Tensor]) -> list[Tensor] | None:
        return None


@dataclass(frozen=True)
class PerHead(_Computed):
    """Several projections in one tensor, head by head: rows [head, projection, width] (GPT-NeoX)."""

    moves_rows: ClassVar[bool] = True

    def load(self, files: list[Tensor], shapes: list[Shape], config: Config) -> list[Tensor]:
        by_head = files[0].unflatten(0, (-1, len(shapes), _head_width(config)))
        return [part.flatten(0, 1) for part in by_head.unbind(1)]

    def save(self, parameters: list[Tensor], config: Config) -> list[Tensor]:
        by_head = [p.unflatten(0, (-1, _head_width(config))) for p in parameters]
        return [torch.stack(by_head, dim=1).flatten(0, 2)]

    def file_shapes(self, shapes: list[Shape]) -> list[Shape]:
        return [(sum(shape[0] for shape in shapes), *shapes[0][1:])]


@dataclass(frozen=True)
class Interleave(_Computed):
    """Several parameters take turns along the file's last dimension; matrices are stored (in, out) (gpt-oss)."""

    def load(self, files: list[Tensor], shapes: list[Shape], config: Config) -> list[Tensor]:
        turns = [files[0][..., i :: len(shapes)] for i in range(len(shapes))]
        return [t.transpose(-1, -2) if len(shapes[0]) > 2 else t for t in turns]

    def save(self, parameters: list[Tensor], config: Config) -> list[Tensor]:
        turns = [p.transpose(-1, -2) if p.ndim > 2 else p for p in parameters]
        return [torch.stack(turns, dim=-1).flatten(-2)]

    def file_shapes(self, shapes: list[Shape]) -> list[Shape]:
        first = shapes[0] if len(shapes[0]) < 3 else (*shapes[0][:-2], shapes[0][-1], shapes[0][-2])
        return [(*first[:-1], first[-1] * len(shapes))]


@dataclass(frozen=True)
class Leading:
    """The file has `n` more dimensions in front, of size one."""

    n: int

    moves_rows: ClassVar[bool] = False

    def load(self, files: list[Tensor], shapes: list[Shape], config: Config) -> list[Tensor]:
        return [files[0].view(shapes[0])]

    def save(self, parameters: list[Tensor], config: Config) -> list[Tensor]:
        return [parameters[0].view(self.file_shapes([tuple(parameters[0].shape)])[0])]

    def file_shapes(self, shapes: list[Shape]) -> list[Shape]:
        return [(1,) * self.n + shapes[0]]

    def views(self, parameters: list[Tensor]) -> list[Tensor] | None:
        return [parameters[0][(None,) * self.n]]


@dataclass(frozen=True)
class RopeOrder(_Computed):
    """Query or key rows whose rotary pairs are neighbours in the file, and half a head apart here."""

    moves_rows: ClassVar[bool] = True

    def load(self, files: list[Tensor], shapes: list[Shape], config: Config) -> list[Tensor]:
        pairs = files[0].unflatten(0, (-1, _head_width(config) // 2, 2))
        return [pairs.transpose(1, 2).flatten(0, 2)]

    def save(self, parameters: list[Tensor], config: Config) -> list[Tensor]:
        halves = parameters[0].unflatten(0, (-1, 2, _head_width(config) // 2))
        return [halves.transpose(1, 2).flatten(0, 2)]


@dataclass(frozen=True)
class Shift(_Computed):
    """The file stores the parameter plus `by`."""

    by: float

    def load(self, files: list[Tensor], shapes: list[Shape], config: Config) -> list[Tensor]:
        return [files[0] - self.by]

    def save(self, parameters: list[Tensor], config: Config) -> list[Tensor]:
        return [parameters[0] + self.by]


def _head_width(config: Config) -> int:
    assert isinstance(config, TransformerConfig)
    widths = {block.mixer.op.d_head for block in config.stack.blocks if isinstance(block.mixer.op, AttentionConfig)}
    (width,) = widths
    return width
