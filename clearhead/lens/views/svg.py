"""A sheet as SVG: text stays text, colours follow the reader's light or dark page, a pointer over a cell names it."""

from __future__ import annotations

import base64
from xml.sax.saxutils import escape

from clearhead.lens.views.palette import PAPER, THEMES, Theme, hexadecimal, ink, tones
from clearhead.lens.views.sheet import Box, Line, Map, Sheet, Word
from clearhead.lens.views.thumbnail import indexed

_FONT = "ui-sans-serif, system-ui, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', 'Noto Sans', Arial, sans-serif"


def draw(sheet: Sheet) -> str:
    """A whole SVG document."""
    width, height = f"{sheet.width:.0f}", f"{sheet.height:.0f}"
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{_FONT}" role="img">',
            f"<title>{_clean(sheet.title)}</title>",
            f"<style>{_style(sheet, 'light')}\n@media (prefers-color-scheme: dark) {{{_style(sheet, 'dark')}}}</style>",
            '<rect class="paper" width="100%" height="100%"/>',
            *(_box(box) for box in sheet.boxes),
            *(_map(place) for place in sheet.maps),
            *(_line(line) for line in sheet.lines),
            *(_word(word) for word in sheet.words),
            "</svg>\n",
        ]
    )


def _style(sheet: Sheet, theme: Theme) -> str:
    """Rules for what is in the sheet, in the colours of one theme."""
    ground, plain, faint = map(hexadecimal, PAPER[theme])
    other = "dark" if theme == "light" else "light"
    rules = [
        f".paper{{fill:{ground}}} text{{fill:{plain};dominant-baseline:central;white-space:pre;unicode-bidi:isolate}}",
        f".faint{{fill:{faint}}}",
    ]
    if sheet.maps:
        rules.append(f"image{{image-rendering:pixelated}} .{theme}{{display:inline}} .{other}{{display:none}}")
    if sheet.lines:
        drawn = {line.tone: tones(theme)[line.tone] for line in sheet.lines}
        rules += ["line{stroke-width:2}", *(f".of-{tone}{{stroke:{hexadecimal(c)}}}" for tone, c in drawn.items())]
    used = {box.tone for box in sheet.boxes} | {word.on for word in sheet.words}
    for tone, shade in tones(theme).items():
        if tone in used:
            rules.append(f".{tone}{{fill:{hexadecimal(shade)}}} .on-{tone}{{fill:{hexadecimal(ink(shade))}}}")
    return "\n".join(rules)


def _box(box: Box) -> str:
    return _hinted("rect", f'class="{box.tone}" {_place(box)}', box.hint)


def _map(place: Map) -> str:
    """The map twice, for light and for dark ground; the style shows one of them."""
    pictures = []
    for theme in THEMES:
        picture = base64.b64encode(indexed(place.steps_TS, theme)).decode("ascii")
        about = f'class="{theme}" {_place(place)} preserveAspectRatio="none" href="data:image/png;base64,{picture}"'
        pictures.append(_hinted("image", about, place.hint))
    return "".join(pictures)


def _line(line: Line) -> str:
    ends = f'x1="{line.x:.2f}" y1="{line.y:.2f}" x2="{line.to_x:.2f}" y2="{line.to_y:.2f}"'
    return _hinted("line", f'class="of-{line.tone}" {ends} stroke-opacity="{line.weight:.3f}"', line.hint)


def _place(part: Box | Map) -> str:
    return f'x="{part.x:.2f}" y="{part.y:.2f}" width="{part.width:.2f}" height="{part.height:.2f}"'


def _hinted(tag: str, attributes: str, hint: str) -> str:
    if not hint:
        return f"<{tag} {attributes}/>"
    return f"<{tag} {attributes}><title>{_clean(hint)}</title></{tag}>"


def _word(word: Word) -> str:
    name = f"on-{word.on}" if word.on is not None else word.weight
    turn = f' transform="rotate(-90 {word.x:.2f} {word.y:.2f})"' if word.upright else ""
    bold = ' font-weight="600"' if word.weight == "bold" else ""
    return (
        f'<text class="{name}" x="{word.x:.2f}" y="{word.y:.2f}" font-size="{word.size}"'
        f' text-anchor="{word.anchor}"{bold}{turn} pointer-events="none">{_clean(word.text)}</text>'
    )


def _clean(text: str) -> str:
    """Escaped for XML, without the characters that XML has no way to write."""
    return escape(
        "".join(
            char
            for char in text
            if char in "\t\n" or (char >= " " and not "\ud800" <= char <= "\udfff" and char not in "\ufffe\uffff")
        )
    )
