"""From the names of a weight file to those of the modules, and back: rows, layouts, and the plan of reading one."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from torch import Tensor

from clearhead.config import TransformerConfig
from clearhead.errors import ClearheadError
from clearhead.families.row_ops import Config, Joined, Op, Same, Shape, Stack, Tied


@dataclass(frozen=True)
class Row:
    """A tensor of the file and the parameters it holds: full names, with `{l}` for the number of the layer.

    Numbers that only the file has (`{e}`, its experts) mean one tensor each; see `Stack`.
    """

    file: str
    parameters: str | tuple[str, ...]
    op: Op = field(default_factory=Same)
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
