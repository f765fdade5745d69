"""A sheet as a PNG, drawn by Pillow with whatever fonts the machine has."""

from __future__ import annotations

import io
from functools import lru_cache

from PIL import Image, ImageDraw, ImageFont, features

from clearhead.lens.views.labels import NEWLINE, SPACE, leftward
from clearhead.lens.views.palette import PAPER, RGB, ink, tones
from clearhead.lens.views.sheet import Line, Map, Sheet, Word, text_width
from clearhead.lens.views.thumbnail import indexed

_FONTS = {
    "plain": ("DejaVuSans.ttf", "NotoSans-Regular.ttf", "LiberationSans-Regular.ttf", "Arial.ttf", "Helvetica.ttc"),
    "bold": ("DejaVuSans-Bold.ttf", "NotoSans-Bold.ttf", "LiberationSans-Bold.ttf", "Arial Bold.ttf", "arialbd.ttf"),
    "other": ("NotoSansHebrew-Regular.ttf", "NotoSansArabic-Regular.ttf", "Arial Unicode.ttf", "arial.ttf"),
    "wide": ("NotoSansCJK-Regular.ttc", "wqy-microhei.ttc", "Arial Unicode.ttf", "PingFang.ttc", "msyh.ttc"),
}
"""Fonts to look for, by the names they have on Linux, macOS and Windows."""
_STAND_INS = {SPACE: ".", NEWLINE: "\\n", "\N{EMPTY SET}": "()", "\N{HORIZONTAL ELLIPSIS}": "..."}
_MOST_PIXELS = 25_000_000

Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def draw(sheet: Sheet, scale: float = 2.0) -> bytes:
    """A PNG file's bytes, on light paper, `scale` pixels to one of the sheet's (less where it would be huge)."""
    scale = min(scale, (_MOST_PIXELS / (sheet.width * sheet.height)) ** 0.5)
    image = Image.new("RGB", (round(sheet.width * scale), round(sheet.height * scale)), PAPER["light"][0])
    pen = ImageDraw.Draw(image)
    colours = tones("light")
    for box in sheet.boxes:
        left, top = round(box.x * scale), round(box.y * scale)
        right, bottom = round((box.x + box.width) * scale) - 1, round((box.y + box.height) * scale) - 1
        pen.rectangle((left, top, max(left, right), max(top, bottom)), colours[box.tone])
    for place in sheet.maps:
        _lay(image, place, scale)
    if sheet.lines:
        _lines(image, sheet.lines, scale)
    for word in sheet.words:
        _write(image, word, scale)
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()


def _lay(image: Image.Image, place: Map, scale: float) -> None:
    """A map, stretched over its place with its cells kept square-edged."""
    size = max(1, round(place.width * scale)), max(1, round(place.height * scale))
    picture = Image.open(io.BytesIO(indexed(place.steps_TS, "light"))).convert("RGB")
    image.paste(picture.resize(size, Image.Resampling.NEAREST), (round(place.x * scale), round(place.y * scale)))


def _lines(image: Image.Image, lines: list[Line], scale: float) -> None:
    """Lines over one another: weak ones first, each letting through what lies below as far as it is weak."""
    pen = ImageDraw.Draw(image, "RGBA")
    for line in sorted(lines, key=lambda line: line.weight):
        ends = (line.x * scale, line.y * scale, line.to_x * scale, line.to_y * scale)
        pen.line(ends, (*tones("light")[line.tone], round(255 * line.weight)), max(1, round(2 * scale)))


def _write(image: Image.Image, word: Word, scale: float) -> None:
    fill: RGB = PAPER["light"][2 if word.weight == "faint" else 1]
    if word.on is not None:
        fill = ink(tones("light")[word.on])
    style = "bold" if word.weight == "bold" else "plain"
    runs = _runs(word.text, style, round(word.size * scale))
    length = sum(font.getlength(text) for text, font in runs)
    room = 1.2 * text_width(word.text, word.size * scale)
    if length > room:
        # Characters that had to be spelled out: smaller letters, so that nothing runs over its neighbour.
        runs = _runs(word.text, style, max(6, int(word.size * scale * room / length)))
        length = sum(font.getlength(text) for text, font in runs)
    x, y = word.x * scale, word.y * scale
    if word.upright:
        # Pillow has no turned text: write on a strip of paper's own transparency, turn it, lay it down.
        strip = Image.new("RGBA", (round(length) + 4, round(word.size * scale * 1.5)))
        _run(ImageDraw.Draw(strip), 0.0, strip.height / 2, runs, fill)
        turned = strip.rotate(90, expand=True)
        image.paste(turned, (round(x - turned.width / 2), round(y - turned.height)), turned)
        return
    x -= {"start": 0.0, "middle": length / 2, "end": length}[word.anchor]
    _run(ImageDraw.Draw(image), x, y, runs, fill)


def _run(pen: ImageDraw.ImageDraw, x: float, y: float, runs: list[tuple[str, Font]], fill: RGB) -> None:
    for text, font in runs:
        pen.text((x, y), text, fill, font, anchor="lm" if isinstance(font, ImageFont.FreeTypeFont) else None)
        x += font.getlength(text)


def _runs(text: str, style: str, size: int) -> list[tuple[str, Font]]:
    """The text in pieces, each with a font that has its characters; what no font has is spelled out."""
    fonts = [_font(style, size), _font("other", size), _font("wide", size)]
    runs: list[tuple[str, Font]] = []
    text = text.replace("\u2068", "").replace("\u2069", "")
    for char in text if features.check("raqm") else leftward(text):
        font = next((font for font in fonts if _has(font, char)), None)
        if font is None:
            char, font = _STAND_INS.get(char, char.encode("unicode_escape").decode("ascii")), fonts[0]
        if runs and runs[-1][1] is font:
            runs[-1] = (runs[-1][0] + char, font)
        else:
            runs.append((char, font))
    return runs


@lru_cache(maxsize=64)
def _font(style: str, size: int) -> Font:
    for name in _FONTS[style]:
        try:
            return ImageFont.truetype(name, size)
        except OSError:
            continue
    return ImageFont.load_default(size)


@lru_cache(maxsize=4096)
def _has(font: Font, char: str) -> bool:
    if char == " ":
        return True
    # A font draws the same box for everything it lacks, such as this code that is nobody's.
    return bytes(font.getmask(char)) != bytes(font.getmask("\U0010fffe"))
