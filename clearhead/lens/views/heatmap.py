"""Numbers in rows and columns as a coloured table: layers by heads, layers by positions, a word in each cell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.views.drawn import SheetFigure, Tabular
from clearhead.lens.views.heads import maps_page
from clearhead.lens.views.labels import bare, isolated, shorten, visible
from clearhead.lens.views.scale import Kind, Scale, scale_of
from clearhead.lens.views.sheet import LABEL, MARGIN, SMALL, Box, Sheet, Word, text_width
from clearhead.lens.views.webpage import page

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

MOST_CELLS = 40_000
"""A page has at most so many cells that are parts of it; beyond them, numbers are drawn as a map."""
_SIDE = 1200
"""What a picture's longer side aims at, in pixels."""


@dataclass(frozen=True)
class HeatMap(SheetFigure):
    """values: (R, C). words: R rows of C texts that stand in the cells in place of the numbers."""

    title: str
    values: Tensor
    row_labels: Sequence[str]
    column_labels: Sequence[str]
    words: Sequence[Sequence[str]] | None = None
    note: str = ""
    corner: str = ""
    """What rows and columns are, such as "layer \\ head"."""
    kind: Kind | None = None

    @property
    def scale(self) -> Scale:
        return scale_of(self.values, self.kind)

    def hint(self, row: int, column: int, value: float) -> str:
        """A cell in words: where it is, what stands in it, and its number."""
        what = [f"{name.strip()} " for name in self.corner.split("\\")] if "\\" in self.corner else ["", ""]
        where = f"{what[0]}{isolated(self.row_labels[row])}, {what[1]}{isolated(self.column_labels[column])}"
        word = f"{isolated(bare(self.words[row][column]))} " if self.words is not None else ""
        return f"{where}: {word}{self.scale.say(value)}"

    def parts(self, console: Console) -> list[RenderableType]:
        from clearhead.lens.views.terminal_heatmap import lines

        return lines(self, console)

    def sheet(self) -> Sheet:
        sheet, scale = Sheet(self.title), self.scale
        top = sheet.heading([self.note] if self.note else []) + 10
        rows, columns = self.values.shape
        width, height = _cell(self)
        size = min(SMALL, int(height * 0.7))
        labels = [self.corner, *(shorten(label, LABEL) for label in self.row_labels)]
        left = MARGIN + 8 + max(text_width(label, SMALL) for label in labels)
        heads = [shorten(label, LABEL) for label in self.column_labels]
        upright = max(map(len, heads), default=0) * SMALL * 0.6 > width - 4
        top += (max(text_width(head, SMALL) for head in heads) if upright else SMALL) + 8
        every = max(1, math.ceil(SMALL / width))
        for column in range(0, columns, every):
            x = left + (column + 0.5) * width
            if upright:
                sheet.words.append(Word(x, top - 6, heads[column], SMALL, upright=True))
            else:
                sheet.words.append(Word(x, top - 10, heads[column], SMALL, "middle", "faint"))
        if self.corner:
            sheet.words.append(Word(left - 8, top - 10, self.corner, SMALL, "end", "faint"))
        every = max(1, math.ceil(SMALL / height))
        gap = 1 if height > 8 else 0
        for row, numbers in enumerate(self.values.tolist()):
            y = top + row * height
            if row % every == 0:
                sheet.words.append(Word(left - 8, y + height / 2, shorten(self.row_labels[row], LABEL), SMALL, "end"))
            for column, value in enumerate(numbers):
                tone, x = scale.tone(value), left + column * width
                sheet.boxes.append(Box(x, y, width - gap, height - gap, tone, self.hint(row, column, value)))
                text = scale.short(value) if self.words is None else _fitting(self.words[row][column], width, size)
                if text and size >= 8 and text_width(text, size) <= width:
                    middle = x + width / 2, y + height / 2
                    sheet.words.append(Word(*middle, text, size, "middle", on=tone))
        sheet.reach(left + columns * width, top + rows * height)
        sheet.key(scale, top + rows * height + 18)
        return sheet

    def page(self, above: str = "") -> str:
        """above: markup that stands over the table."""
        if self.values.numel() > MOST_CELLS:
            sides = self.row_labels, self.column_labels
            return maps_page(self.title, self.note, self.values, *sides, self.scale)
        data = {
            "rows": list(self.row_labels),
            "columns": list(self.column_labels),
            "values": listed(self.values),
            "words": None if self.words is None else [list(row) for row in self.words],
            "corner": self.corner,
            "scale": self.scale.to_json(),
        }
        return page("heatmap", self.title, self.note, data, above=above)

    def to_json(self) -> dict[str, Any]:
        words = {} if self.words is None else {"cells": [list(row) for row in self.words]}
        return {
            "title": self.title,
            "rows": list(self.row_labels),
            "columns": list(self.column_labels),
            "values": listed(self.values),
            **words,
        }


def heat_map(result: Tabular) -> HeatMap:
    """What a result of rows and columns is drawn as.

    Raises:
        ClearheadError: its numbers have other rows or columns than its labels, or there are none.
    """
    values = result.values.detach().float().cpu()
    labels = [[visible(str(label)) for label in side] for side in (result.row_labels, result.column_labels)]
    if values.shape != (len(labels[0]), len(labels[1])):
        shape = tuple(values.shape)
        raise ClearheadError(
            f"{result.title}: {len(labels[0])} rows and {len(labels[1])} columns of labels, not {shape}"
        )
    if not values.numel():
        raise ClearheadError(f"{result.title}: there are no numbers to draw")
    cells = getattr(result, "cells", None)
    return HeatMap(
        title=result.title,
        values=values,
        row_labels=labels[0],
        column_labels=labels[1],
        words=None if cells is None else [[visible(word) for word in row] for row in cells],
        note=getattr(result, "note", ""),
        corner=getattr(result, "corner", ""),
        kind=getattr(result, "kind", None),
    )


def listed(values: Tensor) -> list[list[float | None]]:
    """Numbers as JSON knows them: None for what is none."""
    return [[value if math.isfinite(value) else None for value in row] for row in values.tolist()]


def _cell(figure: HeatMap) -> tuple[float, float]:
    """How wide and high a cell is: with room for what stands in it, where there are not too many."""
    rows, columns = figure.values.shape
    width = 44.0 if figure.words is None else 92.0
    return max(2.0, min(width, _SIDE * 1.5 / columns)), max(2.0, min(24.0, _SIDE / rows))


def _fitting(word: str, width: float, size: int) -> str:
    return shorten(word, int((width - 4) / (size * 0.6))) if size else ""
