"""One attention pattern: the map with its tokens, and what a report adds, the likeliest next tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from torch import Tensor

from clearhead.lens.views.drawn import SheetFigure
from clearhead.lens.views.heads import Layer, layers_json, maps_page
from clearhead.lens.views.heatmap import HeatMap
from clearhead.lens.views.labels import bare, isolated, shorten
from clearhead.lens.views.pattern import is_triangle
from clearhead.lens.views.scale import Scale
from clearhead.lens.views.sheet import BODY, LABEL, MARGIN, SMALL, Box, Map, Sheet, Word, text_width
from clearhead.lens.views.thumbnail import steps

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from clearhead.lens.report import NextToken

HOW = "A row is what one token looks at, in percent; it sums to 100."
_SIDE = 760
"""What the map's longer side aims at, in pixels."""
_BOXES = 128
"""Longer texts are drawn as one map, not as boxes that a pointer can read."""
_SCALE = Scale()


@dataclass(frozen=True)
class HeadMap(SheetFigure):
    """What the tokens `queries` (T) look at among `keys` (S), which may be the same text: `pattern_TS`."""

    title: str
    pattern_TS: Tensor
    queries: Sequence[str]
    keys: Sequence[str]

    def parts(self, console: Console) -> list[RenderableType]:
        from rich.text import Text

        from clearhead.lens.views.screen import theme_of
        from clearhead.lens.views.terminal import BOLD, attention_map

        if list(self.queries) != list(self.keys):
            return HeatMap(self.title, self.pattern_TS, self.queries, self.keys).parts(console)
        drawn = attention_map(self.pattern_TS, self.queries, width=console.width, theme=theme_of(console))
        return [Text(self.title, style=BOLD), drawn]

    def sheet(self) -> Sheet:
        return lay_out(self, [HOW])

    def page(self) -> str:
        return maps_page(self.title, HOW, self.pattern_TS, self.queries, self.keys, _SCALE)

    def to_json(self) -> dict[str, Any]:
        return layers_json(self.title, [Layer("", self.pattern_TS[None], self.queries, self.keys)])


def lay_out(drawn: HeadMap, subtitle: Sequence[str], next_tokens: Sequence[NextToken] = ()) -> Sheet:
    """Title, map, key and next-token bars, from top to bottom."""
    sheet = Sheet(drawn.title)
    top = sheet.heading(subtitle) + 10
    bottom = _map(sheet, drawn, top)
    bottom = sheet.key(_SCALE, bottom + 18)
    if next_tokens:
        _bars(sheet, next_tokens, bottom + 26)
    return sheet


def _map(sheet: Sheet, drawn: HeadMap, top: float) -> float:
    """The cells with their labels; gives the bottom edge."""
    rows, columns = drawn.pattern_TS.shape
    side = max(1.0, min(36.0, _SIDE / max(rows, columns)))
    triangle = list(drawn.queries) == list(drawn.keys) and is_triangle(drawn.pattern_TS)
    queries, keys = ([shorten(token, LABEL) for token in tokens] for tokens in (drawn.queries, drawn.keys))
    size = min(BODY, max(7, int(side * 0.8)))
    every = max(1, round(size * 1.1 / side))
    left: float = MARGIN
    if not triangle:
        left += max(text_width(queries[query], size) for query in _labelled(rows, every)) + 8
        top += max(text_width(keys[key], size) for key in _labelled(columns, every)) + 8
    right, bottom = left + columns * side, top + rows * side
    if max(rows, columns) > _BOXES:
        sheet.maps.append(Map(left, top, columns * side, rows * side, steps(drawn.pattern_TS), sheet.title))
    else:
        _cells(sheet, drawn, (left, top), side, triangle)
    for query in _labelled(rows, every):
        y = top + (query + 0.5) * side
        bold: Literal["plain", "bold"] = "bold" if query == rows - 1 else "plain"
        if triangle:
            at = left + (query + 1) * side + 7
            sheet.words.append(Word(at, y, queries[query], size, weight=bold))
            right = max(right, at + text_width(queries[query], size))
        else:
            sheet.words.append(Word(left - 8, y, queries[query], size, "end", weight=bold))
    if not triangle:
        places = [(key, left + (key + 0.5) * side) for key in _labelled(columns, every)]
        sheet.words += [Word(x, top - 8, keys[key], size, upright=True) for key, x in places]
    sheet.reach(right, bottom)
    return bottom


def _labelled(n: int, every: int) -> range:
    """Which of n tokens have a label: the last, and others as far apart as there is room for."""
    return range((n - 1) % every, n, every)


def _cells(sheet: Sheet, drawn: HeadMap, corner: tuple[float, float], side: float, triangle: bool) -> None:
    (left, top), (rows, columns) = corner, drawn.pattern_TS.shape
    pad = side * 0.04 if side > 8 else 0.0
    queries, keys = ([isolated(bare(token)) for token in tokens] for tokens in (drawn.queries, drawn.keys))
    for query, row in enumerate(drawn.pattern_TS.tolist()):
        y = top + query * side
        # The ground first, in one piece, so that the many cells near zero need no box of their own.
        sheet.boxes.append(Box(left, y, (query + 1 if triangle else columns) * side, side, "c0"))
        for key, weight in enumerate(row[: query + 1] if triangle else row):
            tone = _SCALE.tone(weight)
            if tone == "c0" and max(rows, columns) > 64:
                continue
            hint = f"{queries[query]} → {keys[key]}: {weight:.4f}"
            x = left + key * side
            sheet.boxes.append(Box(x + pad, y + pad, side - 2 * pad, side - 2 * pad, tone, hint))
            if side >= 26 and weight >= 0.005:
                middle = x + side / 2, y + side / 2
                sheet.words.append(Word(*middle, _SCALE.short(weight), int(side * 0.36), "middle", on=tone))


def _bars(sheet: Sheet, tokens: Sequence[NextToken], y: float) -> None:
    """What comes next, a bar a token."""
    sheet.words.append(Word(MARGIN, y, "What comes next", BODY, weight="bold"))
    names = [shorten(token.text, LABEL) for token in tokens]
    start = MARGIN + max(text_width(name, BODY) for name in names) + 10
    top = max(token.probability for token in tokens) or 1.0
    y += 24
    for name, token in zip(names, tokens, strict=True):
        length = max(1.0, 300 * token.probability / top)
        sheet.words.append(Word(start - 10, y, name, BODY, "end"))
        sheet.boxes.append(Box(start, y - 7, length, 14, "bar", f"{isolated(bare(name))}: {token.probability:.4f}"))
        sheet.words.append(Word(start + length + 8, y, f"{100 * token.probability:.1f} %", SMALL, weight="faint"))
        y += 22
    sheet.reach(start + 370, y - 10)
