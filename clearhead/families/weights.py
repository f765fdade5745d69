"""From the names and layouts of a weight file to those of the modules, and back: rows and reversible operations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from clearhead.config import AttentionConfig, TransformerConfig
from clearhead.errors import ClearheadError

Shape = tuple[int, ...]


@runtime_checkable
class Op(Protocol):
    """How the tensors of one row differ between file and modules. `save` undoes `load` bit for bit."""

    def load(self, files: list[Tensor], shapes: list[Shape], config: TransformerConfig) -> list[Tensor]:
        """The parameters (of `shapes`), from the file's tensors."""
        ...

    def save(self, parameters: list[Tensor], config: TransformerConfig) -> list[Tensor]:
        """The file's tensors, from the parameters."""
        ...

    def file_shapes(self, shapes: list[Shape]) -> list[Shape]:
        """The shapes the file must have for parameters of `shapes`."""
        ...

    def view(self, parameters: list[Tensor]) -> Tensor | None:
        """The parameters seen as the file's tensor, to read straight into; None where they can't be."""
        ...


@dataclass(frozen=True)
class Same:
    """One tensor, as it is."""

    def load(self, files: list[Tensor], shapes: list[Shape], config: TransformerConfig) -> list[Tensor]:
        return files

    def save(self, parameters: list[Tensor], config: TransformerConfig) -> list[Tensor]:
        return parameters

    def file_shapes(self, shapes: list[Shape]) -> list[Shape]:
        return shapes

    def view(self, parameters: list[Tensor]) -> Tensor | None:
        return parameters[0]


@dataclass(frozen=True)
class Tied(Same):
    """One tensor, as it is; where the model ties it to `parameter`, the file may leave it out."""

    parameter: str = ""


@dataclass(frozen=True)
class Concat:
    """One tensor in the file holds several parameters, one after another along their first dimension.

    `transposed`: the file stores (in, out), as GPT-2's "Conv1D" does.
    """

    transposed: bool = False

    def load(self, files: list[Tensor], shapes: list[Shape], config: TransformerConfig) -> list[Tensor]:
        whole = files[0].t() if self.transposed and files[0].ndim == 2 else files[0]
        return list(whole.split([shape[0] for shape in shapes], dim=0))

    def save(self, parameters: list[Tensor], config: TransformerConfig) -> list[Tensor]:
        whole = torch.cat(parameters, dim=0)
        return [whole.t().contiguous() if self.transposed and whole.ndim == 2 else whole]

    def file_shapes(self, shapes: list[Shape]) -> list[Shape]:
        whole = (sum(shape[0] for shape in shapes), *shapes[0][1:])
        return [whole[::-1] if self.transposed else whole]

    def view(self, parameters: list[Tensor]) -> Tensor | None:
        if len(parameters) > 1:
            return None
        return parameters[0].t() if self.transposed else parameters[0]


Transpose = Concat(transposed=True)
"""One matrix, stored (in, out)."""


@dataclass(frozen=True)
class RopeOrder:
    """Query or key rows whose rotary pairs are neighbours in the file, and half a head apart here."""

    def load(self, files: list[Tensor], shapes: list[Shape], config: TransformerConfig) -> list[Tensor]:
        pairs = files[0].unflatten(0, (-1, _head_width(config) // 2, 2))
        return [pairs.transpose(1, 2).flatten(0, 2)]

    def save(self, parameters: list[Tensor], config: TransformerConfig) -> list[Tensor]:
        halves = parameters[0].unflatten(0, (-1, 2, _head_width(config) // 2))
        return [halves.transpose(1, 2).flatten(0, 2)]

    def file_shapes(self, shapes: list[Shape]) -> list[Shape]:
        return shapes

    def view(self, parameters: list[Tensor]) -> Tensor | None:
        return None


@dataclass(frozen=True)
class Shift:
    """The file stores the parameter plus `by`."""

    by: float

    def load(self, files: list[Tensor], shapes: list[Shape], config: TransformerConfig) -> list[Tensor]:
        return [files[0] - self.by]

    def save(self, parameters: list[Tensor], config: TransformerConfig) -> list[Tensor]:
        return [parameters[0] + self.by]

    def file_shapes(self, shapes: list[Shape]) -> list[Shape]:
        return shapes

    def view(self, parameters: list[Tensor]) -> Tensor | None:
        return None


def _head_width(config: TransformerConfig) -> int:
    op = config.stack.blocks[0].mixer.op
    assert isinstance(op, AttentionConfig)
    return op.d_head


@dataclass(frozen=True)
class Row:
    """A tensor of the file and the parameters it holds: full names, with `{l}` for the number of the layer."""

    file: str
    parameters: str | tuple[str, ...]
    op: Op = Same()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.parameters,) if isinstance(self.parameters, str) else self.parameters


@dataclass(frozen=True)
class Layout:
    """All tensors of a kind of file. `skips` are templates of tensors that hold nothing learned, and `prefix` is what
    files saved from the inner model leave out of every name.
    """

    rows: tuple[Row, ...]
    skips: tuple[str, ...] = ()
    prefix: str = ""

    def __post_init__(self) -> None:
        check_bijection(self.rows)

    def suiting(self, files: Iterable[str]) -> Layout:
        """This layout, or the one without the prefix where no file name has it."""
        if not self.prefix or any(name.startswith(self.prefix) for name in files):
            return self
        rows = tuple(replace(row, file=row.file.removeprefix(self.prefix)) for row in self.rows)
        return Layout(rows, tuple(skip.removeprefix(self.prefix) for skip in self.skips))


@dataclass(frozen=True)
class Match:
    """A row at one layer, in one model: which tensor of the file goes to which parameters."""

    file: str
    parameters: tuple[str, ...]
    op: Op


def check_bijection(rows: Sequence[Row]) -> None:
    """Refuse rows that name a tensor or a parameter twice: they could not be undone."""
    files = [row.file for row in rows]
    names = [name for row in rows for name in row.names]
    for kind, values in (("tensor", files), ("parameter", names)):
        twice = {value for value in values if values.count(value) > 1}
        if twice:
            raise AssertionError(f"the rows name the {kind} {sorted(twice)[0]} twice")
    for row in rows:
        if any(("{l}" in name) != ("{l}" in row.file) for name in row.names):
            raise AssertionError(f"the row for {row.file} has a layer number on one side only")


def expand(rows: Sequence[Row], parameters: Mapping[str, Shape], n_layers: int) -> list[Match]:
    """The rows that this model has parameters for, layer by layer."""
    matches = []
    for row in rows:
        for layer in range(n_layers) if "{l}" in row.file else (0,):
            names = tuple(name.format(l=layer) for name in row.names)
            if all(name in parameters for name in names):
                matches.append(Match(row.file.format(l=layer), names, row.op))
    return matches


def plan(
    layout: Layout, parameters: Mapping[str, Shape], files: Mapping[str, Shape], n_layers: int, where: str
) -> tuple[list[Match], list[tuple[str, str]]]:
    """What to read, and which tensors of the file repeat a tied parameter and must equal it.

    Raises:
        ClearheadError: a parameter that nothing fills, a tensor that nothing claims, a shape that does not fit;
            all of them in one message.
    """
    matches = expand(layout.rows, parameters, n_layers)
    problems = []
    for match in matches:
        expected = match.op.file_shapes([parameters[name] for name in match.parameters])[0]
        if match.file not in files:
            tied = isinstance(match.op, Tied)
            hint = "; if it shares the embedding's, the config must say so (tie_word_embeddings)" if tied else ""
            problems.append(f"the tensor {match.file} is missing{hint}")
        elif tuple(files[match.file]) != tuple(expected):
            problems.append(
                f"{match.file} has shape {_shape(files[match.file])}, and the config asks for {_shape(expected)}"
            )
    filled = {name for match in matches for name in match.parameters}
    problems += [f"nothing in the file fills the parameter {name}" for name in parameters if name not in filled]

    repeats = [
        (row.file, row.op.parameter)
        for row in layout.rows
        if isinstance(row.op, Tied) and row.names[0] not in parameters and row.file in files
    ]
    claimed = {match.file for match in matches} | {file for file, _ in repeats}
    skipped = [_template(skip) for skip in layout.skips]
    problems += [
        f"the tensor {name} has no place in this model"
        for name in files
        if name not in claimed and not any(pattern.fullmatch(name) for pattern in skipped)
    ]
    if problems:
        shown = problems[:12] + ([f"and {len(problems) - 12} more"] if len(problems) > 12 else [])
        listed = "\n  ".join(shown)
        raise ClearheadError(
            f"{where}: weights and config do not fit:\n  {listed}\n"
            "Use the config and the weights of one and the same model, and download both again if in doubt"
        )
    return matches, repeats


def _template(text: str) -> re.Pattern[str]:
    return re.compile(re.escape(text).replace(re.escape("{l}"), r"\d+"))


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
