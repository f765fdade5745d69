"""From the names and layouts of a weight file to those of the modules, and back: rows and reversible operations."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, Protocol, runtime_checkable

import torch
from torch import Tensor

from clearhead.config import AttentionConfig, TransformerConfig, TwoTowersConfig
from clearhead.errors import ClearheadError

Shape = tuple[int, ...]
Config = TransformerConfig | TwoTowersConfig


@runtime_checkable
class Op(Protocol):
    """How the tensors of one row differ between file and modules. `save` undoes `load` bit for bit."""

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

    def file_shapes(self, shapes: list[Shape]) -> list[Shape]:
        return shapes

    def views(self, parameters: list[Tensor]) -> list[Tensor] | None:
        return None


@dataclass(frozen=True)
class PerHead(_Computed):
    """Several projections in one tensor, head by head: rows [head, projection, width] (GPT-NeoX)."""

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


@dataclass(frozen=True)
class Row:
    """A tensor of the file and the parameters it holds: full names, with `{l}` for the number of the layer.

    Numbers that only the file has (`{e}`, its experts) mean one tensor each; see `Stack`.
    """

    file: str
    parameters: str | tuple[str, ...]
    op: Op = Same()
    when: Callable[[Any], bool] | None = None
    """Of which configs' models this is a row; None: of all that have the parameters."""

    def holds_in(self, config: Config) -> bool:
        """Whether a model of this config has the row."""
        return self.when is None or self.when(config)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.parameters,) if isinstance(self.parameters, str) else self.parameters


Numbers = dict[str, int]


@dataclass(frozen=True)
class Layout:
    """All tensors of a kind of file."""

    rows: tuple[Row, ...]
    skips: tuple[str, ...] = ()
    """Templates of tensors that hold nothing learned: old buffers, or layers that no pass runs."""
    prefix: str = ""
    """What files saved from the inner model leave out of every name."""
    prefix_of_some: tuple[str, Callable[[Any], bool]] | None = None
    """Another prefix, and of which configs' models it is."""
    spares: tuple[str, ...] = ()
    """How names begin of a part that some of the family's classes go without: where nothing of it is read, all of it
    is listed as unused."""
    constants: Mapping[str, Callable[[Any], Tensor | None]] = field(default_factory=dict)
    """Tensors that follow from the config: written (unless None), and read over."""
    legacy: Mapping[str, str] = field(default_factory=dict)
    """How older files end a name, and how it ends today."""
    numbers: Callable[[Config, Numbers], Numbers] | None = None
    """The file's numbers, from those of our names, where they are not the same (ALBERT's groups)."""

    def __post_init__(self) -> None:
        check_bijection(self.rows, counts_alike=self.numbers is None)

    def suiting(self, files: Iterable[str]) -> Layout:
        """This layout with the prefix that file names have, or without any."""
        names = tuple(files)
        known = (self.prefix, *(self.prefix_of_some or ())[:1])
        return self.under(next((prefix for prefix in known if any(n.startswith(prefix) for n in names)), ""))

    def writing(self, config: Config) -> Layout:
        """The layout to save a model in: one that ends in its stream is saved as the inner model."""
        heads = getattr(config, "heads", None)
        if heads is not None and heads.tokens is None and not heads.labels:
            return self.under("")
        other, holds = self.prefix_of_some or (self.prefix, lambda config: True)
        return self.under(other) if holds(config) else self

    def under(self, prefix: str) -> Layout:
        """The layout with another prefix, or none: that of the inner model."""
        if prefix == self.prefix:
            return self

        def renamed(name: str) -> str:
            return prefix + name.removeprefix(self.prefix) if name.startswith(self.prefix) else name

        return replace(
            self,
            rows=tuple(replace(row, file=renamed(row.file)) for row in self.rows),
            skips=tuple(map(renamed, self.skips)),
            constants={renamed(name): make for name, make in self.constants.items()},
            prefix=prefix,
        )

    def spelled_today(self, name: str) -> str:
        """The name of a tensor as current files have it."""
        for old, new in self.legacy.items():
            if name.endswith(old):
                return name.removesuffix(old) + new
        return name


@dataclass(frozen=True)
class Match:
    """A row in one model, at one layer: which tensors of the file go to which parameters."""

    files: tuple[str, ...]
    parameters: tuple[str, ...]
    op: Op


@dataclass(frozen=True)
class Plan:
    """What to read from a file."""

    matches: list[Match]
    repeats: list[tuple[str, str]]
    """Tensors that repeat a tied parameter and must equal it."""
    unused: list[str]
    """Tensors of heads and parts that the model was not asked to have."""
    new: list[str]
    """Parameters of heads that the file does not have, to be drawn at random: only where asked for."""


def check_bijection(rows: Sequence[Row], counts_alike: bool = True) -> None:
    """Refuse rows that name a tensor or a parameter twice: they could not be undone. One tensor may serve the heads of
    several tasks, since a model has that of one. `counts_alike`: both sides have the same numbers.
    """
    always = [row for row in rows if row.when is None]
    files = [row.file for row in always if not _is_head(row.names)]
    files += {row.file for row in always if _is_head(row.names)}
    names = [name for row in always for name in row.names]
    for kind, values in (("tensor", files), ("parameter", names)):
        twice = {value for value in values if values.count(value) > 1}
        if twice:
            raise AssertionError(f"the rows name the {kind} {sorted(twice)[0]} twice")
    for row in rows if counts_alike else ():
        own, theirs = _variables(row.file), {frozenset(_variables(name)) for name in row.names}
        counts_more = own - set().union(*theirs)
        if len(theirs) > 1 or (counts_more and not isinstance(row.op, Stack)) or set(*theirs) - own:
            raise AssertionError(f"the row for {row.file} has a number on one side only")


def expand(layout: Layout, parameters: Mapping[str, Shape], config: Config) -> list[Match]:
    """The rows that this model has parameters for, layer by layer."""
    matches = []
    for row in layout.rows:
        for numbers in _numbers(row.names[0], parameters) if row.holds_in(config) else ():
            names = tuple(name.format(**numbers) for name in row.names)
            if not all(name in parameters for name in names):
                continue
            theirs = layout.numbers(config, numbers) if layout.numbers is not None and numbers else numbers
            counted = _variables(row.file) - theirs.keys()
            if counted:
                (letter,) = counted
                every = row.op.words if isinstance(row.op, Joined) else range(parameters[names[0]][0])
                files = tuple(row.file.format(**theirs, **{letter: i}) for i in every)
            else:
                files = (row.file.format(**theirs),)
            matches.append(Match(files, names, row.op))
    return matches


def plan(
    layout: Layout,
    parameters: Mapping[str, Shape],
    files: Mapping[str, Shape],
    config: Config,
    where: str,
    new_head: bool = False,
) -> Plan:
    """What to read. `new_head`: a head that the file lacks may be drawn at random.

    Raises:
        ClearheadError: a parameter that nothing fills, a tensor that nothing claims, a shape that does not fit;
            all of them in one message.
    """
    spelled = {layout.spelled_today(name): name for name in files}
    problems: list[str] = []
    matches: list[Match] = []
    new: list[str] = []
    for match in expand(layout, parameters, config):
        if new_head and _is_head(match.parameters) and not any(file in spelled for file in match.files):
            new += match.parameters
            continue
        problems += _misfits(match, [parameters[name] for name in match.parameters], spelled, files)
        matches.append(match)
    filled = {name for match in matches for name in match.parameters} | set(new)
    problems += [f"nothing in the file fills the parameter {name}" for name in parameters if name not in filled]

    repeats = [
        (spelled[row.file], row.op.parameter)
        for row in layout.rows
        if row.holds_in(config)
        and isinstance(row.op, Tied)
        and row.names[0] not in parameters
        and (not _is_head(row.names) or _has_token_head(config))
        and row.op.parameter in parameters
        and row.file in spelled
    ]
    claimed = {file for match in matches for file in match.files}
    spares = tuple(part for part in layout.spares if not any(file.startswith(part) for file in claimed))
    claimed |= {file for file, _ in repeats}
    claimed |= set(layout.constants)
    skipped = [_template(skip) for skip in layout.skips]
    heads = [_template(row.file) for row in layout.rows if _is_head(row.names) and row.names[0] not in parameters]
    left = [name for name in spelled if name not in claimed and not any(s.fullmatch(name) for s in skipped)]
    unused = [name for name in left if name.startswith(spares) or any(head.fullmatch(name) for head in heads)]
    problems += [f"the tensor {name} has no place in this model" for name in left if name not in unused]
    if problems:
        _refuse(problems, where)
    renamed = [replace(match, files=tuple(spelled[file] for file in match.files)) for match in matches]
    return Plan(renamed, repeats, [spelled[name] for name in unused], new)


def _misfits(
    match: Match, shapes: list[Shape], spelled: Mapping[str, str], files: Mapping[str, Shape]
) -> Iterator[str]:
    for name, expected in zip(match.files, match.op.file_shapes(shapes), strict=True):
        if name not in spelled:
            hint = ""
            if isinstance(match.op, Tied):
                hint = "; if it shares the embedding's, the config must say so (tie_word_embeddings)"
            if _is_head(match.parameters):
                hint += "; new_head=True (--new-head) draws it at random, to be trained"
            yield f"the tensor {name} is missing{hint}"
        elif tuple(files[spelled[name]]) != tuple(expected):
            yield f"{name} has shape {_shape(files[spelled[name]])}, and the config asks for {_shape(expected)}"


def _refuse(problems: list[str], where: str) -> NoReturn:
    shown = problems[:12] + ([f"and {len(problems) - 12} more"] if len(problems) > 12 else [])
    listed = "\n  ".join(shown)
    raise ClearheadError(
        f"{where}: weights and config do not fit:\n  {listed}\n"
        "Use the config and the weights of one and the same model, and download both again if in doubt"
    )


def _is_head(parameters: Sequence[str]) -> bool:
    """Whether these belong to what reads the finished stream, which a checkpoint may have more or less of."""
    return parameters[0].split(".")[0] in ("head", "pool", "labels", "contacts")


def _has_token_head(config: Config) -> bool:
    return isinstance(config, TransformerConfig) and config.heads.tokens is not None


def _numbers(template: str, names: Iterable[str]) -> list[Numbers]:
    """The numbers at which `template` is one of `names`, in order."""
    if "{" not in template:
        return [{}] if template in names else []
    pattern = _template(template)
    found = [match.groupdict() for name in names if (match := pattern.fullmatch(name))]
    return [{letter: int(number) for letter, number in numbers.items()} for numbers in found]


def _variables(template: str) -> set[str]:
    return set(re.findall(r"\{(\w)\}", template))


def _template(text: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{(\w)\\\}", r"(?P<\1>\\d+)", re.escape(text)))


def _shape(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"
