"""Curves laid out in a picture: where each line, point and word goes. Written as a part of a page here, and as files
and for the terminal beside it (`charts`, `terminal`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from typing import Literal, NamedTuple

TICKS = 4
"""About so many steps an axis has."""
Points = Sequence[tuple[float, float]]
Say = Callable[[float], str]


@dataclass(frozen=True)
class Curve:
    """A line: its name, and what it is at each place; or the places alone, where they were measured one by one."""

    name: str
    points: Points
    dots: bool = False


@dataclass(frozen=True)
class Axes:
    """How values are said, and which axes go by factors instead of steps."""

    say: Say
    say_x: Say = "{:,.0f}".format
    x: str = "step"
    """What is across."""
    from_zero: bool = True
    log_x: bool = False
    log_y: bool = False
    sizes: bool = False
    """What is up are bytes, which are round where they are powers of two."""


@dataclass(frozen=True)
class Frame:
    """A picture's size, and the room around the curves in it."""

    width: float = 560
    height: float = 250
    left: float = 62
    right: float = 74
    top: float = 14
    bottom: float = 28


class Stroke(NamedTuple):
    """A line of the curve `number`; -1 is the grid's."""

    points: tuple[tuple[float, float], ...]
    number: int
    hint: str = ""


class Dot(NamedTuple):
    """A point of the curve `number`."""

    x: float
    y: float
    number: int


class Word(NamedTuple):
    """A line of text whose middle height is y; of the curve `number`, or of none."""

    x: float
    y: float
    text: str
    anchor: Literal["start", "middle", "end"]
    kind: Literal["tick", "end", "title"] = "tick"
    number: int = -1


@dataclass(frozen=True)
class Drawing:
    """A finished layout, in pixels."""

    frame: Frame
    strokes: tuple[Stroke, ...]
    dots: tuple[Dot, ...]
    words: tuple[Word, ...]


class Scales:
    """Where values stand on the two axes: from 0 (left, bottom) to 1; and the values that are marked."""

    def __init__(self, curves: Sequence[Curve], axes: Axes) -> None:
        xs = [x for curve in curves for x, _ in curve.points]
        ys = [y for curve in curves for _, y in curve.points]
        self._x, self._y = _axis(axes.log_x), _axis(axes.log_y)
        self._first, self._last = self._x(min(xs)), self._x(max(xs))
        if axes.log_y:
            self.y_ticks = (size_ticks if axes.sizes else log_ticks)(min(ys), max(ys))
        else:
            self.y_ticks = ticks(min(0.0, *ys) if axes.from_zero else min(ys), max(ys))
        self.x_ticks = (log_ticks if axes.log_x else ticks)(min(xs), max(xs))
        self.x_ticks = [x for x in self.x_ticks if min(xs) <= x <= max(xs)]
        outside = axes.log_y and len(self.y_ticks) > 1
        self._low = self._y(min(ys) if outside else min(self.y_ticks[0], *ys))
        self._high = self._y(max(ys) if outside else max(self.y_ticks[-1], *ys))
        self.y_ticks = [y for y in self.y_ticks if self._low <= self._y(y) <= self._high]

    def across(self, x: float) -> float:
        return (self._x(x) - self._first) / ((self._last - self._first) or 1)

    def up(self, y: float) -> float:
        return (self._y(y) - self._low) / ((self._high - self._low) or 1)


def _axis(log: bool) -> Callable[[float], float]:
    return math.log10 if log else float


def drawable(curves: Sequence[Curve], axes: Axes) -> list[Curve]:
    """The curves, each with what can be drawn of it; without those of which that is nothing."""

    def fits(x: float, y: float) -> bool:
        return math.isfinite(y) and (y > 0 or not axes.log_y) and (x > 0 or not axes.log_x)

    kept = [Curve(c.name, [(x, y) for x, y in c.points if fits(x, y)], c.dots) for c in curves]
    return [curve for curve in kept if curve.points]


def lay_out(curves: Sequence[Curve], axes: Axes, frame: Frame = Frame()) -> Drawing | None:
    """Curves over one axis, each line with its last value at its end; None where there is nothing to draw."""
    curves = drawable(curves, axes)
    if not curves:
        return None
    scales = Scales(curves, axes)
    right, bottom = frame.width - frame.right, frame.height - frame.bottom

    def at(x: float, y: float) -> tuple[float, float]:
        return frame.left + scales.across(x) * (right - frame.left), bottom - scales.up(y) * (bottom - frame.top)

    first = curves[0].points[0][0]
    heights = [at(first, y)[1] for y in scales.y_ticks]
    strokes = [Stroke(((frame.left, y), (right, y)), -1) for y in heights]
    words = [
        Word(frame.left - 8, height, _tick(y, axes.say), "end")
        for y, height in zip(scales.y_ticks, heights, strict=True)
    ]
    words += [Word(at(x, scales.y_ticks[0])[0], bottom + 16, axes.say_x(x), "middle") for x in scales.x_ticks]
    dots = []
    lines = [(number, curve) for number, curve in enumerate(curves) if not curve.dots]
    ends = _apart([at(*curve.points[-1])[1] for _, curve in lines], 15)
    for (number, curve), end in zip(lines, ends, strict=True):
        x, y = curve.points[-1]
        hint = f"{curve.name}: {axes.say(y)} at {axes.x} {axes.say_x(x)}"
        strokes.append(Stroke(tuple(at(*point) for point in curve.points), number, hint))
        dots.append(Dot(*at(x, y), number))
        words.append(Word(right + 9, end, axes.say(y), "start", "end", number))
    dots += [Dot(*at(*point), number) for number, curve in enumerate(curves) if curve.dots for point in curve.points]
    return Drawing(frame, tuple(strokes), tuple(dots), tuple(words))


def draw(curves: Sequence[Curve], say: Say, *, from_zero: bool = True) -> str:
    """Curves over the same steps as SVG, to stand in a page that gives the colours. `say` writes a value."""
    drawing = lay_out(curves, Axes(say, from_zero=from_zero))
    if drawing is None:
        return ""
    box = f"0 0 {drawing.frame.width:g} {drawing.frame.height:g}"
    return f'<svg viewBox="{box}" role="img">{"".join(elements(drawing))}</svg>'


def elements(drawing: Drawing) -> list[str]:
    """A drawing's elements of SVG, by class: grid, tick, line0, dot0 and so on."""
    parts = []
    for points, number, hint in drawing.strokes:
        if number < 0:
            (x1, y1), (x2, y2) = points
            parts.append(f'<line class="grid" x1="{x1:g}" x2="{x2:g}" y1="{y1:.1f}" y2="{y2:.1f}"/>')
        else:
            line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            title = f"<title>{escape(hint)}</title>"
            parts.append(f'<polyline class="line line{number}" points="{line}">{title}</polyline>')
    parts += [f'<circle class="dot{d.number}" cx="{d.x:.1f}" cy="{d.y:.1f}" r="3.5"/>' for d in drawing.dots]
    for word in drawing.words:
        name = word.kind if word.number < 0 else f"{word.kind} dot{word.number}"
        anchor = "" if word.anchor == "start" else f' text-anchor="{word.anchor}"'
        parts.append(f'<text class="{name}" x="{word.x:.1f}" y="{word.y:.1f}"{anchor}>{escape(word.text)}</text>')
    return parts


def _tick(y: float, say: Say) -> str:
    """A round number, which needs no zeros at its end; one with a unit as it is said."""
    text = say(y)
    return text if not text[-1:].isdigit() else f"{y:,.10g}"


def ticks(low: float, high: float) -> list[float]:
    """Round numbers that a scale from `low` to `high` has."""
    if high <= low:
        return [low]
    rough = (high - low) / TICKS
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * by for by in (1, 2, 5, 10) if size * by >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Round numbers on a scale by factors: powers of ten, with 2 and 5 times them where those are few."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = max(1, round(len(decades) / 6))
    tens = [10.0**i for i in decades if i % every == 0]
    inside = [x for x in tens if low <= x <= high]
    if len(inside) >= 3:
        return inside
    finer = [10.0**i * by for i in decades for by in (1, 2, 5)]
    return [x for x in finer if low * 0.999 <= x <= high * 1.001] or [low]


def size_ticks(low: float, high: float) -> list[float]:
    """Powers of two on a scale by factors."""
    first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
    every = max(1, math.ceil((last - first) / 6))
    return [2.0**i for i in range(first, last + 1) if i % every == 0] or [low]


def _apart(places: list[float], least: float) -> list[float]:
    """The places, moved so that no two are nearer than `least`; in the order they came."""
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = list(places)
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + least)
    return moved
