"""What every result of a lens is: a table of numbers whose rows and columns have names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from clearhead.lens.views.drawn import Drawn
from clearhead.lens.views.scale import Kind


class Cell(NamedTuple):
    """One number of a table, with the names of its row and its column."""

    row: str
    column: str
    value: float


@dataclass(frozen=True, eq=False)
class Table(Drawn):
    """`values` (rows, columns), drawn as a heat map. NaN stands where there is nothing, such as a head that a layer has
    not.
    """

    title: str
    values: Tensor
    row_labels: list[str]
    column_labels: list[str]

    kind: ClassVar[Kind] = "signed"
    """How the numbers are coloured: by their distance from zero; as shares of one where a result says so."""

    def top(self, n: int = 10) -> list[Cell]:
        """The `n` numbers farthest from zero, largest first."""
        size = self.values.nan_to_num(nan=-1.0).abs().where(~self.values.isnan(), torch.full_like(self.values, -1.0))
        n_there = int((size >= 0).sum())
        places = size.flatten().topk(min(n, n_there)).indices.tolist()
        width = len(self.column_labels)
        cells = [(place // width, place % width) for place in places]
        return [Cell(self.row_labels[r], self.column_labels[c], float(self.values[r, c])) for r, c in cells]

    def to_json(self) -> dict[str, Any]:
        """The table as plain lists, ready for `json.dumps`; null where there is nothing."""
        return {
            "title": self.title,
            "rows": self.row_labels,
            "columns": self.column_labels,
            "values": plain(self.values),
        }


def plain(values: Tensor) -> Any:
    """Nested lists of numbers, None for what is not a number."""

    def clean(value: Any) -> Any:
        if isinstance(value, list):
            return [clean(part) for part in value]
        return None if value != value else value

    return clean(values.tolist())
