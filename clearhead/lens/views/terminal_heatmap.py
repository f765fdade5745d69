"""A table of numbers or words in a terminal: as many columns side by side as fit, the rest in bands below."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from rich.cells import cell_len, set_cell_size
from rich.color import Color
from rich.console import Console, RenderableType
from rich.style import Style
from rich.text import Text

from clearhead.lens.views.labels import shorten
from clearhead.lens.views.palette import LEVELS, Theme, ink, tones
from clearhead.lens.views.scale import Scale
from clearhead.lens.views.screen import theme_of
from clearhead.lens.views.terminal import BLOCKS, BOLD, DIM

if TYPE_CHECKING:
    from clearhead.lens.views.heatmap import HeatMap

_LABEL, _WORD = 22, 12
_BANDS = 4
"""A table in more bands than these is drawn in narrower cells, and then cut to its last columns."""


def lines(figure: HeatMap, console: Console) -> list[RenderableType]:
    """Title, bands, and a key of the colours."""
    theme, scale = theme_of(console), figure.scale
    columns = figure.values.shape[1]
    wide = max([cell_len(figure.corner), *(min(_LABEL, cell_len(label)) for label in figure.row_labels)])
    room = max(8, console.width - wide - 1)
    cell = _width(figure)
    if figure.words is None and columns * cell > _BANDS * room:
        cell = 2 if scale.kind == "signed" and theme is None else 1
    at_once = max(1, room // cell)
    shown = min(columns, at_once * _BANDS)
    parts: list[RenderableType] = [Text(figure.title, style=BOLD)]
    if figure.note:
        parts.append(Text(figure.note, style=DIM))
    if shown < columns:
        parts.append(Text(f"the last {shown} of {columns} columns; a file (.html) has them all", style=DIM))
    for first in range(columns - shown, columns, at_once):
        band = range(first, min(first + at_once, columns))
        head = Text(shorten(figure.corner, wide).ljust(wide) + " ", style=DIM)
        for column in band:
            head.append(_heading(figure, column, cell), DIM)
        parts.append(head)
        for row, label in enumerate(figure.row_labels):
            name = shorten(label, _LABEL)
            line = Text(name + " " * (wide - cell_len(name) + 1))
            for column in band:
                line.append(*_cell(figure, row, column, cell, theme))
            parts.append(line)
    return [_unwrapped(part) for part in parts] + [_key(scale, theme)]


def _unwrapped(part: RenderableType) -> RenderableType:
    if isinstance(part, Text):
        part.no_wrap, part.overflow = True, "ignore"
    return part


def _width(figure: HeatMap) -> int:
    """Columns of the screen that a cell takes with what stands in it."""
    if figure.words is None:
        return 4 if figure.scale.kind == "share" else 6
    return min(_WORD, max((cell_len(word) for row in figure.words for word in row), default=1)) + 1


def _heading(figure: HeatMap, column: int, cell: int) -> str:
    if cell < 3:
        return str(column)[-1].ljust(cell)
    label = shorten(figure.column_labels[column], cell - 1)
    blank = " " * (cell - 1 - cell_len(label))
    return f"{blank}{label} " if figure.words is None else f"{label}{blank} "


def _cell(figure: HeatMap, row: int, column: int, cell: int, theme: Theme | None) -> tuple[str, Style]:
    value, scale = float(figure.values[row, column]), figure.scale
    if figure.words is not None:
        word = shorten(figure.words[row][column], cell - 1)
        text = set_cell_size(word, cell - 1) + " "
    elif cell >= 3:
        text = scale.short(value).rjust(cell - 1) + " "
    else:
        text = " " * cell if theme is not None else _block(value, scale, cell)
    if theme is None or math.isnan(value):
        return text, Style.null()
    ground = tones(theme)[scale.tone(value)]
    return text, Style(color=Color.from_rgb(*ink(ground)), bgcolor=Color.from_rgb(*ground))


def _block(value: float, scale: Scale, cell: int) -> str:
    """How much, as a block; with its sign where there are signs."""
    if math.isnan(value):
        return " " * cell
    step = int(scale.tone(value)[1:])
    share = abs(step - LEVELS / 2) / (LEVELS / 2) if scale.kind == "signed" else step / LEVELS
    block = BLOCKS[round(share * (len(BLOCKS) - 1))]
    return block if cell == 1 else ("-" if value < 0 else "+") + block


def _key(scale: Scale, theme: Theme | None) -> Text:
    line = Text()
    for value in scale.key():
        text = f" {scale.short(value)} "
        if theme is None:
            line.append(f"{_block(value, scale, 2 if scale.kind == 'signed' else 1)}{text}", DIM)
        else:
            ground = tones(theme)[scale.tone(value)]
            line.append(text, Style(color=Color.from_rgb(*ink(ground)), bgcolor=Color.from_rgb(*ground)))
    return line.append(" percent" if scale.kind == "share" else "", DIM)
