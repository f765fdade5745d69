"""A sheet as SVG: text stays text, colours follow the reader's light or dark page, a pointer over a cell names it."""

from __future__ import annotations

from xml.sax.saxutils import escape

from clearhead.lens.views.palette import BAR, LEVELS, PAPER, Theme, colour, hexadecimal, ink
from clearhead.lens.views.sheet import Box, Sheet, Word

_FONT = "ui-sans-serif, system-ui, 'Segoe UI', 'Helvetica Neue', 'DejaVu Sans', 'Noto Sans', Arial, sans-serif"


def draw(sheet: Sheet) -> str:
    """A whole SVG document."""
    width, height = f"{sheet.width:.0f}", f"{sheet.height:.0f}"
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{_FONT}" role="img">',
            f"<title>{_clean(sheet.title)}</title>",
            f"<style>{_style('light')}\n@media (prefers-color-scheme: dark) {{{_style('dark')}}}</style>",
            '<rect class="paper" width="100%" height="100%"/>',
            *(_box(box) for box in sheet.boxes),
            *(_word(word) for word in sheet.words),
            "</svg>\n",
        ]
    )


def _style(theme: Theme) -> str:
    ground, plain, faint = map(hexadecimal, PAPER[theme])
    rules = [
        f".paper{{fill:{ground}}} text{{fill:{plain};dominant-baseline:central;white-space:pre}}",
        f".faint{{fill:{faint}}} .bar{{fill:{hexadecimal(BAR)}}}",
    ]
    for step in range(LEVELS + 1):
        shade = colour(step, theme)
        rules.append(f".c{step}{{fill:{hexadecimal(shade)}}} .t{step}{{fill:{hexadecimal(ink(shade))}}}")
    return "\n".join(rules)


def _box(box: Box) -> str:
    name = "bar" if box.step < 0 else f"c{box.step}"
    place = f'x="{box.x:.2f}" y="{box.y:.2f}" width="{box.width:.2f}" height="{box.height:.2f}"'
    if not box.hint:
        return f'<rect class="{name}" {place}/>'
    return f'<rect class="{name}" {place}><title>{_clean(box.hint)}</title></rect>'


def _word(word: Word) -> str:
    name = f"t{word.on}" if word.on is not None else word.weight
    turn = f' transform="rotate(-90 {word.x:.2f} {word.y:.2f})"' if word.upright else ""
    bold = ' font-weight="600"' if word.weight == "bold" else ""
    return (
        f'<text class="{name}" x="{word.x:.2f}" y="{word.y:.2f}" font-size="{word.size}"'
        f' text-anchor="{word.anchor}"{bold}{turn} pointer-events="none">{_clean(word.text)}</text>'
    )


def _clean(text: str) -> str:
    """Escaped for XML, without the characters that XML has no way to write."""
    return escape(
        "".join(char for char in text if char in "\t\n" or (char >= " " and not "\ud800" <= char <= "\udfff"))
    )
