"""What the heads of a model do: a line a head, a picture of layers by heads, and everything as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor

from clearhead.lens.heads.circuits import Copying, Reads
from clearhead.lens.heads.measure import Looks, Measure
from clearhead.lens.heads.roles import EFFECT, SURE, UNKNOWN, role_of, stands_out
from clearhead.lens.views.drawn import Drawn

if TYPE_CHECKING:
    from rich.console import Console

SHORT = {
    UNKNOWN: "?",
    "first token": "first",
    "end token": "end",
    "itself": "self",
    "previous token": "prev",
    "next token": "next",
    "duplicate token": "dup",
    "induction": "induct",
    "same word": "word",
    "subject-verb": "subj",
    "pronoun": "pron",
    "bracket": "brack",
    "neighbouring patch": "patch",
}
"""Roles as words of a narrow cell; others are said in full."""


@dataclass(frozen=True)
class Head:
    """One head and all that was measured of it. `part` is "encoder", "text" or "image" where there are two stacks."""

    part: str
    layer: int
    head: int
    measures: Mapping[str, Measure]
    looks: Looks
    copying: Copying | None = None
    reads: tuple[Reads, ...] = ()

    @property
    def role(self) -> str:
        """What it does, or "unknown" (see `clearhead.lens.heads.roles`)."""
        return role_of(self.measures)

    @property
    def best(self) -> Measure | None:
        """The measure behind its role."""
        return self.measures.get(self.role)

    @property
    def also(self) -> tuple[str, ...]:
        """What else stands out, the most first."""
        others = [name for name, measure in self.measures.items() if name != self.role and stands_out(measure)]
        return tuple(sorted(others, key=lambda name: -self.measures[name].effect))

    @property
    def address(self) -> str:
        """Where `clearhead.look` finds it, less the last word: `layers.3.mixer`."""
        return f"{self.part}.layers.{self.layer}.mixer" if self.part else f"layers.{self.layer}.mixer"

    @property
    def name(self) -> str:
        """ "3.1": layer 3, head 1."""
        return f"{self.part} {self.layer}.{self.head}".lstrip()

    def to_json(self) -> dict[str, Any]:
        measures = {
            name: {**asdict(measure), "effect": measure.effect, "sure": measure.sure}
            for name, measure in self.measures.items()
        }
        return {
            "address": self.address,
            "layer": self.layer,
            "head": self.head,
            "role": self.role,
            "also": list(self.also),
            **asdict(self.looks),
            "copying": None if self.copying is None else asdict(self.copying),
            "reads": [asdict(reads) for reads in self.reads],
            "measures": measures,
        }


class Heads(Sequence[Head], Drawn):
    """All heads of a model in order. `found("induction")` gives those of a role, the surest effect first; `values`,
    `cells`, `row_labels` and `column_labels` are the table of layers by heads that is drawn.
    """

    title = "What each head does"
    corner = "layer \\ head"
    kind = "share"

    def __init__(self, heads: Sequence[Head], left_out: Sequence[str] = ()) -> None:
        self._heads = tuple(heads)
        self.left_out = tuple(left_out)
        """What was not asked, and why."""

    @overload
    def __getitem__(self, at: int) -> Head: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Head]: ...
    def __getitem__(self, at: int | slice) -> Head | Sequence[Head]:
        return self._heads[at]

    def __len__(self) -> int:
        return len(self._heads)

    def __iter__(self) -> Iterator[Head]:
        return iter(self._heads)

    def __repr__(self) -> str:
        return f"<Heads: {len(self)}, of which {self.unknown:.0%} unknown>"

    def found(self, role: str) -> list[Head]:
        """The heads of a role, the one with the largest effect first."""
        mine = [head for head in self if head.role == role]
        return sorted(mine, key=lambda head: -head.best.effect if head.best is not None else 0.0)

    @property
    def unknown(self) -> float:
        """The share of heads that do nothing that was asked about."""
        return sum(head.role == UNKNOWN for head in self) / len(self)

    @property
    def note(self) -> str:
        return (
            f"A head's role is what gets most attention beyond its control: at least {EFFECT:.2f} of it all, and "
            f"{SURE:g} standard deviations. {self.unknown:.0%} of {len(self)} heads do nothing that was asked about."
        )

    # ---- layers by heads

    @property
    def _rows(self) -> dict[tuple[str, int], dict[int, Head]]:
        rows: dict[tuple[str, int], dict[int, Head]] = {}
        for head in self:
            rows.setdefault((head.part, head.layer), {})[head.head] = head
        return rows

    @property
    def row_labels(self) -> list[str]:
        return [f"{part} {layer}".lstrip() for part, layer in self._rows]

    @property
    def column_labels(self) -> list[str]:
        return [str(head) for head in range(max(head.head for head in self) + 1)]

    @property
    def values(self) -> Tensor:
        """(layers, heads): how much more attention a head gives to what it does than in the control; 0 of unknown ones,
        not a number where a layer has no such head.
        """
        values = torch.full((len(self._rows), len(self.column_labels)), torch.nan)
        for row, heads in enumerate(self._rows.values()):
            for number, head in heads.items():
                values[row, number] = 0.0 if head.best is None else head.best.effect
        return values

    @property
    def cells(self) -> list[list[str]]:
        """(layers, heads): the role in a short word."""
        columns = range(len(self.column_labels))
        roles = [[heads[n].role if n in heads else "" for n in columns] for heads in self._rows.values()]
        return [[SHORT.get(role, role) for role in row] for row in roles]

    # ---- showing

    def show(self, *, console: Console | None = None) -> None:
        """A line a head and the picture of layers by heads, in the terminal."""
        from clearhead.lens.heads.screen import print_heads

        print_heads(self, console)

    def to_json(self) -> dict[str, Any]:
        return {
            "heads": [head.to_json() for head in self],
            "unknown": self.unknown,
            "thresholds": {"effect": EFFECT, "sure": SURE},
            "left_out": list(self.left_out),
        }
