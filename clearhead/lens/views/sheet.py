"""A picture as a list of boxes, words, lines and maps: laid out once, written as SVG or as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import Literal, NamedTuple

from rich.cells import cell_len
from torch import Tensor

from clearhead.lens.views.scale import Scale

TITLE, BODY, SMALL = 20, 14, 12
MARGIN = 28
KEY = 20
"""How high the key of the colours is."""
_STEP = 46
_COLUMNS = 90
"""The most characters of a line below the title."""
LABEL = 20
"""The longest label, in columns of `cell_len`."""

Anchor = Literal["start", "middle", "end"]


class Box(NamedTuple):
    """A rectangle in the colour of a tone (see `palette`)."""

    x: float
    y: float
    width: float
    height: float
    tone: str
    hint: str = ""
    """What a pointer over it says, where the format can."""


class Word(NamedTuple):
    """A line of text whose middle height is y. Its ink fits the paper, or the tone `on`."""

    x: float
    y: float
    text: str
    size: int
    anchor: Anchor = "start"
    weight: Literal["faint", "plain", "bold"] = "plain"
    on: str | None = None
    upright: bool = False
    """Turned to run upwards."""


class Line(NamedTuple):
    """From (x, y) to (to_x, to_y) in the colour of a tone, as strong as `weight`."""

    x: float
    y: float
    to_x: float
    to_y: float
    tone: str
    weight: float
    hint: str = ""


class Map(NamedTuple):
    """A pattern too fine for a box a cell: `steps_TS` (T, S) of the ramp of weights, stretched over the place."""

    x: float
    y: float
    width: float
    height: float
    steps_TS: Tensor
    hint: str = ""


@dataclass
class Sheet:
    """A layout in pixels, to which parts are added; what was added last lies on top."""

    title: str
    width: float = 2 * MARGIN
    height: float = 2 * MARGIN
    boxes: list[Box] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    lines: list[Line] = field(default_factory=list)
    maps: list[Map] = field(default_factory=list)

    def reach(self, right: float, bottom: float) -> None:
        """Make the sheet large enough for something that ends there, with a margin around it."""
        self.width, self.height = max(self.width, right + MARGIN), max(self.height, bottom + MARGIN)

    def heading(self, lines: Sequence[str]) -> float:
        """The title, and lines below it; gives the bottom edge."""
        self.words.append(Word(MARGIN, MARGIN + 8, self.title, TITLE, weight="bold"))
        y: float = MARGIN + 36
        for line in (part for whole in lines for part in wrap(whole, _COLUMNS)):
            self.words.append(Word(MARGIN, y, line, SMALL, weight="faint"))
            y += 18
        self.reach(max(MARGIN + text_width(word.text, word.size) for word in self.words), y)
        return y

    def key(self, scale: Scale, y: float) -> float:
        """The colours with their numbers; gives the bottom edge."""
        values = scale.key()
        for place, value in enumerate(values):
            tone, x = scale.tone(value), MARGIN + place * _STEP
            self.boxes.append(Box(x, y, _STEP, KEY, tone))
            text = scale.short(value) + (" %" if scale.kind == "share" and value == values[-1] else "")
            self.words.append(Word(x + _STEP / 2, y + KEY / 2, text, SMALL, "middle", on=tone))
        self.reach(MARGIN + len(values) * _STEP, y + KEY)
        return y + KEY


def text_width(text: str, size: float) -> float:
    """About how wide a text is: good enough to lay out with, whatever font the reader has."""
    return cell_len(text) * size * 0.6
