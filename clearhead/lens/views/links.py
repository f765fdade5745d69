"""Lines between two rows of tokens: who looks at whom, as strong as it does (BertViz's head view, Vig 2019)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clearhead.lens.views.drawn import SheetFigure
from clearhead.lens.views.heads import Layer, heads_data, layers_json
from clearhead.lens.views.labels import names, shorten
from clearhead.lens.views.palette import of_head
from clearhead.lens.views.sheet import BODY, LABEL, MARGIN, SMALL, Anchor, Box, Line, Sheet, Word, text_width
from clearhead.lens.views.webpage import page

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

LEAST = 0.02
"""Weaker links are not drawn: they could not be seen, and there are very many."""
_LINE = 22
_ACROSS = 260
_SWATCH = 44


@dataclass(frozen=True)
class Links(SheetFigure):
    """Several layers to choose from in a page. A picture and the terminal show the layer `chosen` and its `heads`."""

    title: str
    layers: Sequence[Layer]
    chosen: int = 0
    """The place in `layers` of the one that is shown first."""
    heads: Sequence[int] = ()
    """Which of its heads; none given: all."""
    first: bool = True
    """With links to the first token, where heads rest."""

    @property
    def shown(self) -> tuple[Layer, list[int]]:
        layer = self.layers[self.chosen]
        return layer, list(self.heads or range(len(layer.pattern_HTS)))

    @property
    def caption(self) -> str:
        layer, heads = self.shown
        every = len(heads) == len(layer.pattern_HTS)
        return f"{layer.name}, {'every head' if every else 'head ' + ', '.join(map(str, heads))}"

    def parts(self, console: Console) -> list[RenderableType]:
        from clearhead.lens.views.terminal_heads import links_of

        return links_of(self, console)

    def sheet(self) -> Sheet:
        layer, heads = self.shown
        sheet = Sheet(self.title)
        y = sheet.heading([f"{self.caption}. On the left the token that looks; the stronger the line, the more."]) + 4
        for place, head in enumerate(heads):
            at = MARGIN + place * _SWATCH
            sheet.boxes.append(Box(at, y - 6, 12, 12, of_head(head)))
            sheet.words.append(Word(at + 17, y, str(head), SMALL))
        sheet.reach(MARGIN + len(heads) * _SWATCH, y)
        top = y + 34
        columns = [[shorten(token, LABEL) for token in side] for side in (layer.queries, layer.keys)]
        left = MARGIN + max(text_width(token, BODY) for token in columns[0]) + 8
        right = left + _ACROSS
        ends: tuple[Anchor, Anchor] = ("end", "start")
        for tokens, x, anchor in zip(columns, (left - 8, right + 8), ends, strict=True):
            for place, token in enumerate(tokens):
                sheet.words.append(Word(x, top + place * _LINE, token, BODY, anchor))
        words = names(layer.queries), names(layer.keys)
        # The lines of several heads lie side by side, so that each keeps its colour.
        apart = min(2.0, 14 / len(heads))
        for place, head in enumerate(heads):
            pattern_TS, aside = layer.pattern_HTS[head], (place - (len(heads) - 1) / 2) * apart
            for query, key in (pattern_TS >= LEAST).nonzero().tolist():
                if key == 0 and not self.first:
                    continue
                weight = float(pattern_TS[query, key])
                hint = f"head {head}: {words[0][query]} → {words[1][key]}: {weight:.4f}"
                fall = (key - query) * _LINE
                x, y = -aside * fall / math.hypot(_ACROSS, fall), aside * _ACROSS / math.hypot(_ACROSS, fall)
                y += top + query * _LINE
                sheet.lines.append(Line(left + x, y, right + x, y + fall, of_head(head), weight, hint))
        lines = max(len(tokens) for tokens in columns)
        sheet.reach(right + 8 + max(text_width(token, BODY) for token in columns[1]), top + lines * _LINE)
        return sheet

    def page(self) -> str:
        data, packs = heads_data(self.layers)
        note = f"Point at a token for its links alone, press it to keep them. Weights below {LEAST} draw no line."
        chosen = {"chosen": self.chosen, "heads": self.shown[1], "least": LEAST, "first": self.first}
        return page("links", self.title, note, {**data, **chosen}, packs)

    def to_json(self) -> dict[str, Any]:
        return layers_json(self.title, self.layers)
