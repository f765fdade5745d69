"""Curves in characters, for the terminal."""

from __future__ import annotations

from itertools import pairwise

from rich.style import Style
from rich.text import Text

from clearhead.costs.charts import Chart, colour_of
from clearhead.costs.curves import Curve, Scales, drawable
from clearhead.errors import ClearheadError

_BRAILLE = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""The dot of each row and column of a cell, in Unicode's order."""


def in_terminal(chart: Chart, width: int = 80, height: int = 14) -> Text:
    """A chart in characters, each of which has two dots across and four down."""
    curves = drawable(chart.curves, chart.axes)
    if not curves:
        raise ClearheadError(f"{chart.title}: there is nothing to draw")
    scales = Scales(curves, chart.axes)
    marks = [(scales.up(y), chart.axes.say(y)) for y in scales.y_ticks]
    margin = max(len(text) for _, text in marks) + 1
    columns = max(16, width - margin - 2)
    cells: dict[tuple[int, int], tuple[int, int]] = {}
    for number, curve in enumerate(curves):
        for across, up in _dots(curve, scales, 2 * columns, 4 * height):
            row, column = height - 1 - up // 4, across // 2
            dots, _ = cells.get((row, column), (0, number))
            cells[row, column] = dots | _BRAILLE[3 - up % 4][across % 2], number
    rows = {height - 1 - min(height - 1, int(share * height)): text for share, text in marks}
    styles = [Style(color=colour_of(number)) for number in range(len(curves))]
    text = Text(chart.title + "\n", style="bold", no_wrap=True)
    for number, curve in enumerate(curves):
        text.append("━━ ", styles[number]).append(curve.name + "   ", Style(bold=False))
    for row in range(height):
        text.append("\n" + rows.get(row, "").rjust(margin), Style(bold=False, dim=True))
        text.append(" ┤" if row in rows else " │", Style(bold=False, dim=True))
        for column in range(columns):
            dots, number = cells.get((row, column), (0, 0))
            text.append(chr(0x2800 + dots) if dots else " ", styles[number] if dots else "")
    line = [" "] * (columns + 12)
    for x in scales.x_ticks:
        said = chart.axes.say_x(x)
        start = min(columns - len(said), max(0, round(scales.across(x) * columns) - len(said) // 2))
        if start >= 0 and not "".join(line[max(0, start - 1) : start + len(said)]).strip():
            line[start : start + len(said)] = said
    text.append("\n" + " " * margin + " └" + "─" * columns, Style(bold=False, dim=True))
    text.append("\n" + " " * (margin + 2) + "".join(line).rstrip() + f"  {chart.axes.x}", Style(bold=False, dim=True))
    return text


def _dots(curve: Curve, scales: Scales, width: int, height: int) -> list[tuple[int, int]]:
    """Where a curve's dots are on a grid, from the bottom left; those between two of its points too."""
    places = [(scales.across(x) * (width - 1), scales.up(y) * (height - 1)) for x, y in curve.points]
    found = [(round(x), round(y)) for x, y in places]
    if curve.dots:
        return found
    for (ax, ay), (bx, by) in pairwise(places):
        n = max(1, round(max(abs(bx - ax), abs(by - ay))))
        found += [(round(ax + (bx - ax) * i / n), round(ay + (by - ay) * i / n)) for i in range(n + 1)]
    return found
