"""Curves as files that stand alone: SVG and PNG."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path

from clearhead.costs.curves import Axes, Curve, Drawing, Frame, Stroke, Word, drawable, elements, lay_out
from clearhead.errors import ClearheadError, UsageError
from clearhead.files import write_whole

COLOURS = ("#2f78bd", "#d2493f", "#2e8b57", "#8457b3", "#c07a12", "#0f8a94")
"""Of curves, in order, and then again: told apart on white and on black, and by eyes that see few colours."""
INK, FAINT, GRID, PAPER = "#1d1b22", "#686570", "#dcdad6", "#fffefa"
FRAME = Frame(width=760, height=340, left=84, right=96, top=64, bottom=48)
_FONT = "ui-sans-serif, system-ui, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', Arial, sans-serif"


@dataclass(frozen=True)
class Chart:
    """Curves with their title."""

    title: str
    curves: tuple[Curve, ...]
    axes: Axes


def svg(charts: Sequence[Chart]) -> str:
    """A whole SVG document, one chart below the other."""
    sheet = _sheet(charts)
    names = range(sum(len(chart.curves) for chart in charts))
    style = [
        f"text{{fill:{INK};font-size:13px;dominant-baseline:central}} .tick{{fill:{FAINT}}} .end{{font-weight:600}}",
        f".title{{font-size:16px;font-weight:600}} .grid{{stroke:{GRID}}}",
        ".line{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}",
        *(f".line{i}{{stroke:{colour_of(i)}}} .dot{i}{{fill:{colour_of(i)}}}" for i in names),
    ]
    width, height = f"{sheet.frame.width:g}", f"{sheet.frame.height:g}"
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{_FONT}" role="img">',
            f"<title>{escape(charts[0].title)}</title>",
            f"<style>{' '.join(style)}</style>",
            f'<rect width="100%" height="100%" fill="{PAPER}"/>',
            *elements(sheet),
            "</svg>\n",
        ]
    )


def png(charts: Sequence[Chart], scale: float = 2.0) -> bytes:
    """A PNG file's bytes, `scale` pixels to one of the SVG's."""
    from PIL import Image, ImageDraw, ImageFont

    sheet = _sheet(charts)
    image = Image.new("RGB", (round(sheet.frame.width * scale), round(sheet.frame.height * scale)), PAPER)
    pen = ImageDraw.Draw(image)
    for stroke in sheet.strokes:
        places = [(x * scale, y * scale) for x, y in stroke.points]
        grid = stroke.number < 0
        pen.line(places, GRID if grid else colour_of(stroke.number), round(scale if grid else 2 * scale), "curve")
    for dot in sheet.dots:
        x, y, r = dot.x * scale, dot.y * scale, 3.5 * scale
        pen.ellipse((x - r, y - r, x + r, y + r), colour_of(dot.number))
    for word in sheet.words:
        font = ImageFont.load_default((16 if word.kind == "title" else 13) * scale)
        ink = colour_of(word.number) if word.number >= 0 else FAINT if word.kind == "tick" else INK
        anchor = {"start": "lm", "middle": "mm", "end": "rm"}[word.anchor]
        pen.text((word.x * scale, word.y * scale), word.text, ink, font, anchor)
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _sheet(charts: Sequence[Chart]) -> Drawing:
    """All charts in one layout, each with its title and the names of its curves above it."""
    strokes, dots, words = [], [], []
    top = 0.0
    for chart in charts:
        drawing = lay_out(chart.curves, chart.axes, FRAME)
        if drawing is None:
            raise ClearheadError(f"{chart.title}: there is nothing to draw")
        placed = [*drawing.words, Word(FRAME.left, 22, chart.title, "start", "title")]
        placed.append(Word(FRAME.width - FRAME.right, FRAME.height - 12, chart.axes.x, "end"))
        x = FRAME.left
        for number, curve in enumerate(drawable(chart.curves, chart.axes)):
            strokes.append(Stroke(((x, top + 46), (x + 18, top + 46)), number))
            placed.append(Word(x + 24, 46, curve.name, "start"))
            x += 44 + 7.2 * len(curve.name)
        words += [word._replace(y=word.y + top) for word in placed]
        dots += [dot._replace(y=dot.y + top) for dot in drawing.dots]
        strokes += [stroke._replace(points=tuple((x, y + top) for x, y in stroke.points)) for stroke in drawing.strokes]
        top += FRAME.height
    return Drawing(replace(FRAME, height=top), tuple(strokes), tuple(dots), tuple(words))


def colour_of(number: int) -> str:
    """Of a curve by its number."""
    return COLOURS[number % len(COLOURS)]


WRITERS: dict[str, Callable[[Sequence[Chart]], bytes]] = {".svg": lambda charts: svg(charts).encode(), ".png": png}


def check_extension(path: str | Path) -> Path:
    """The path, if charts can be written to it: call this before the work that leads to them.

    Raises:
        UsageError: its ending is none of those known.
        ClearheadError: there is no such folder.
    """
    path = Path(path).expanduser()
    if path.suffix.lower() not in WRITERS:
        raise UsageError(f"{path}: a plot is saved as {' or '.join(WRITERS)}")
    if not path.parent.is_dir():
        raise ClearheadError(f"{path}: there is no folder {path.parent}; make it first, or name another")
    return path


def save(charts: Sequence[Chart], path: str | Path) -> Path:
    """Write charts whole or not at all: to a name beside it first, then into place.

    Raises:
        ClearheadError: it can't be written, or its ending is none of those known.
    """
    path = check_extension(path)
    content = WRITERS[path.suffix.lower()](charts)
    try:
        write_whole(path, content)
    except OSError as problem:
        raise ClearheadError(f"{path} could not be written: {problem.strerror or problem}") from problem
    return path
