"""A picture of an attention pattern as a list of boxes and words: laid out once, written as SVG or as PNG."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

from rich.cells import cell_len

from clearhead.lens.views.labels import bare, shorten
from clearhead.lens.views.palette import level
from clearhead.lens.views.pattern import is_triangle

if TYPE_CHECKING:
    from clearhead.lens.report import AttentionReport

TITLE, BODY, SMALL = 20, 14, 12
MARGIN = 28
_SIDE = 760
"""What the map's side aims at, in pixels."""
_LABEL = 20
"""The longest label, in columns of `cell_len`."""


class Box(NamedTuple):
    """A rectangle in the colour of a step of the ramp; `step` -1 is the colour of the bars."""

    x: float
    y: float
    width: float
    height: float
    step: int
    hint: str = ""
    """What a pointer over it says, where the format can."""


class Word(NamedTuple):
    """A line of text whose middle height is y. Its ink fits the paper, or the ramp's step `on`."""

    x: float
    y: float
    text: str
    size: int
    anchor: Literal["start", "middle", "end"] = "start"
    weight: Literal["faint", "plain", "bold"] = "plain"
    on: int | None = None
    upright: bool = False
    """Turned to run upwards."""


@dataclass(frozen=True)
class Sheet:
    """A finished layout, in pixels."""

    width: float
    height: float
    boxes: tuple[Box, ...]
    words: tuple[Word, ...]
    title: str


def text_width(text: str, size: float) -> float:
    """About how wide a text is: good enough to lay out with, whatever font the reader has."""
    return cell_len(text) * size * 0.6


def lay_out(report: AttentionReport) -> Sheet:
    """Title, map, scale and next-token bars, from top to bottom."""
    boxes: list[Box] = []
    words = [Word(MARGIN, MARGIN + 8, report.title, TITLE, weight="bold")]
    y: float = MARGIN + 36
    for line in report.subtitle:
        words.append(Word(MARGIN, y, line, SMALL, weight="faint"))
        y += 18
    right, y = _map(report, y + 10, boxes, words)
    y = _scale(y + 18, boxes, words)
    right = max(
        right,
        MARGIN + 8 * 44,
        *(word.x + text_width(word.text, word.size) for word in words[: 1 + len(report.subtitle)]),
    )
    if report.next_tokens:
        right_of_bars, y = _bars(report, y + 26, boxes, words)
        right = max(right, right_of_bars)
    return Sheet(right + MARGIN, y + MARGIN, tuple(boxes), tuple(words), report.title)


def _map(report: AttentionReport, top: float, boxes: list[Box], words: list[Word]) -> tuple[float, float]:
    """The cells with their labels; gives the right and the bottom edge."""
    n = len(report.tokens)
    side = max(2.0, min(36.0, _SIDE / n)) if n * 2 <= _SIDE else max(1.0, _SIDE / n)
    triangle = is_triangle(report.pattern_TS)
    names = [shorten(token.text, _LABEL) for token in report.tokens]
    size = min(BODY, max(7, int(side * 0.8)))
    every = max(1, round(size * 1.1 / side))
    labelled = range(n - 1 - (n - 1) // every * every, n, every)
    left: float = MARGIN
    if not triangle:
        widest = max(text_width(names[query], size) for query in labelled)
        left, top = left + widest + 8, top + widest + 8
    right = left + n * side
    pad = side * 0.04 if side > 8 else 0.0
    for query, row in enumerate(report.pattern_TS.tolist()):
        y = top + query * side
        # The ground first, in one piece, so that the many cells near zero need no box of their own.
        boxes.append(Box(left, y, (query + 1 if triangle else n) * side, side, 0))
        for key, weight in enumerate(row[: query + 1] if triangle else row):
            step = level(weight)
            if step == 0 and n > 64:
                continue
            hint = f"{bare(report.tokens[query].text)} → {bare(report.tokens[key].text)}: {weight:.4f}"
            x = left + key * side
            boxes.append(Box(x + pad, y + pad, side - 2 * pad, side - 2 * pad, step, hint))
            if side >= 26 and weight >= 0.005:
                words.append(
                    Word(x + side / 2, y + side / 2, f"{100 * weight:.0f}", int(side * 0.36), "middle", on=step)
                )
        if query in labelled:
            bold: Literal["plain", "bold"] = "bold" if query == n - 1 else "plain"
            if triangle:
                at = left + (query + 1) * side + 7
                words.append(Word(at, y + side / 2, names[query], size, weight=bold))
                right = max(right, at + text_width(names[query], size))
            else:
                words.append(Word(left - 8, y + side / 2, names[query], size, "end", weight=bold))
                words.append(Word(left + (query + 0.5) * side, top - 8, names[query], size, upright=True))
    return right, top + n * side


def _scale(y: float, boxes: list[Box], words: list[Word]) -> float:
    """The ramp with its weights; gives the bottom edge."""
    steps = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
    for place, weight in enumerate(steps):
        boxes.append(Box(MARGIN + place * 44, y, 44, 20, level(weight)))
        text = f"{100 * weight:.0f}" + (" %" if weight == 1 else "")
        words.append(Word(MARGIN + place * 44 + 22, y + 10, text, SMALL, "middle", on=level(weight)))
    return y + 20


def _bars(report: AttentionReport, y: float, boxes: list[Box], words: list[Word]) -> tuple[float, float]:
    """What comes next, a bar a token; gives the right and the bottom edge."""
    words.append(Word(MARGIN, y, "What comes next", BODY, weight="bold"))
    names = [shorten(token.text, _LABEL) for token in report.next_tokens]
    start = MARGIN + max(text_width(name, BODY) for name in names) + 10
    top = max(token.probability for token in report.next_tokens) or 1.0
    y += 24
    for name, token in zip(names, report.next_tokens, strict=True):
        length = max(1.0, 300 * token.probability / top)
        words.append(Word(start - 10, y, name, BODY, "end"))
        boxes.append(Box(start, y - 7, length, 14, -1, f"{bare(name)}: {token.probability:.4f}"))
        words.append(Word(start + length + 8, y, f"{100 * token.probability:.1f} %", SMALL, weight="faint"))
        y += 22
    return start + 370, y - 10
