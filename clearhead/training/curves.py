"""Curves as SVG, to stand in a page that gives the colours."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

WIDTH, HEIGHT = 560, 250
LEFT, RIGHT, TOP, BOTTOM = 62, 74, 14, 28
TICKS = 4
"""About so many steps an axis has."""
Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Curve:
    """A line: its name, and what it is at each step."""

    name: str
    points: Points


def draw(curves: Sequence[Curve], say: Callable[[float], str], *, from_zero: bool = True) -> str:
    """Curves over the same steps, each with its last value at its end. `say` writes a value."""
    curves = [Curve(c.name, [(x, y) for x, y in c.points if math.isfinite(y)]) for c in curves]
    curves = [curve for curve in curves if curve.points]
    if not curves:
        return ""
    xs = [x for curve in curves for x, _ in curve.points]
    ys = [y for curve in curves for _, y in curve.points]
    x_ticks, y_ticks = ticks(min(xs), max(xs)), ticks(min(0.0, *ys) if from_zero else min(ys), max(ys))
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    low, high = min(y_ticks[0], *ys), max(y_ticks[-1], *ys)
    first, last = min(xs), max(xs)

    def across(x: float) -> float:
        return LEFT + (x - first) / ((last - first) or 1) * (right - LEFT)

    def up(y: float) -> float:
        return bottom - (y - low) / ((high - low) or 1) * (bottom - TOP)

    parts = [f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    for y in y_ticks:
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{up(y):.1f}" y2="{up(y):.1f}"/>')
        parts.append(
            f'<text class="tick" x="{LEFT - 8}" y="{up(y):.1f}" text-anchor="end">{escape(_tick(y, say))}</text>'
        )
    parts += [
        f'<text class="tick" x="{across(x):.1f}" y="{bottom + 16}" text-anchor="middle">{x:,.0f}</text>'
        for x in x_ticks
        if first <= x <= last
    ]
    ends = _apart([up(curve.points[-1][1]) for curve in curves], 15)
    for number, (curve, end) in enumerate(zip(curves, ends, strict=True)):
        line = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in curve.points)
        x, y = curve.points[-1]
        what = f"{curve.name}: {say(y)} at step {x:,.0f}"
        parts += [
            f'<polyline class="line line{number}" points="{line}"><title>{escape(what)}</title></polyline>',
            f'<circle class="dot{number}" cx="{across(x):.1f}" cy="{up(y):.1f}" r="3.5"/>',
            f'<text class="end dot{number}" x="{right + 9}" y="{end:.1f}">{escape(say(y))}</text>',
        ]
    return "".join([*parts, "</svg>"])


def _tick(y: float, say: Callable[[float], str]) -> str:
    """A round number, which needs no zeros at its end."""
    return say(y) if say(y).endswith("%") else f"{y:,.10g}"


def ticks(low: float, high: float) -> list[float]:
    """Round numbers that a scale from `low` to `high` has."""
    if high <= low:
        return [low]
    rough = (high - low) / TICKS
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * by for by in (1, 2, 5, 10) if size * by >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def _apart(places: list[float], least: float) -> list[float]:
    """The places, moved so that no two are nearer than `least`; in the order they came."""
    order = sorted(range(len(places)), key=places.__getitem__)
    moved = list(places)
    for before, after in pairwise(order):
        moved[after] = max(moved[after], moved[before] + least)
    return moved
