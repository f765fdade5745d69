"""Every head as a small map, and the links of a layer, in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.color import Color
from rich.console import Console, RenderableType
from rich.style import Style
from rich.text import Text

from clearhead.lens.views.palette import LEVELS, Theme, colour
from clearhead.lens.views.screen import theme_of
from clearhead.lens.views.terminal import BLOCKS, BOLD, DIM, links
from clearhead.lens.views.thumbnail import steps

if TYPE_CHECKING:
    from torch import Tensor

    from clearhead.lens.views.heads import Grid
    from clearhead.lens.views.links import Links

_SIDES = (16, 12, 8, 6)
"""Columns a small map may have: as many as the width allows."""


def grid(figure: Grid, console: Console) -> list[RenderableType]:
    """A band of small maps a layer. Each cell is as strong as the strongest of those it stands for."""
    theme = theme_of(console)
    wide = max(len(layer.name) for layer in figure.layers)
    most = max(len(layer.pattern_HTS) for layer in figure.layers)
    side = next((side for side in _SIDES if wide + most * (side + 1) <= console.width), _SIDES[-1])
    at_once = max(1, (console.width - wide) // (side + 1))
    parts: list[RenderableType] = [Text(figure.title, style=BOLD)]
    for layer in figure.layers:
        for first in range(0, len(layer.pattern_HTS), at_once):
            heads = layer.pattern_HTS[first : first + at_once]
            numbers = "".join(
                f" {f'head {first + place}' if side >= 8 else first + place:<{side}}" for place in range(len(heads))
            )
            rows = [_small(pattern_TS, side, theme) for pattern_TS in heads]
            band = Text(layer.name.ljust(wide), style=DIM).append(numbers.rstrip() + "\n", DIM)
            for line in range(side // 2):
                band.append(" " * wide)
                for drawn in rows:
                    band.append(" ").append_text(drawn[line])
                band.append("\n" if line < side // 2 - 1 else "")
            parts.append(band)
    return parts


def _small(pattern_TS: Tensor, side: int, theme: Theme | None) -> list[Text]:
    """A map of `side` columns and half as many lines: two cells stand in a character, one above the other."""
    steps_TS = steps(pattern_TS, side)
    lines = []
    for upper in range(0, side, 2):
        line = Text()
        for key in range(side):
            above, below = (_step(steps_TS, row, key, side) for row in (upper, upper + 1))
            if theme is None:
                line.append(BLOCKS[round(max(above, below) / LEVELS * (len(BLOCKS) - 1))])
            else:
                inks = [Color.from_rgb(*colour(step, theme)) for step in (above, below)]
                line.append("▀", Style(color=inks[0], bgcolor=inks[1]))
        lines.append(line)
    return lines


def _step(steps_TS: Tensor, row: int, key: int, side: int) -> int:
    """The step at a place of a square of `side` cells, over which a smaller map is stretched."""
    height, width = steps_TS.shape
    return int(steps_TS[row * height // side, key * width // side])


def links_of(figure: Links, console: Console) -> list[RenderableType]:
    """The strongest links of the heads that are shown, a list a head."""
    layer, heads = figure.shown
    parts: list[RenderableType] = [Text(figure.title, style=BOLD)]
    for head in heads:
        parts += [
            Text(f"\n{layer.name}, head {head}", style=BOLD),
            links(layer.pattern_HTS[head], layer.queries, keys=layer.keys),
        ]
    return parts
