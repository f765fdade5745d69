"""A report as one HTML file: everything in it, nothing fetched, and a pointer over anything reads its numbers."""

from __future__ import annotations

import json
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from clearhead.lens.views.glances import heading
from clearhead.lens.views.labels import names
from clearhead.lens.views.palette import BAR, LEVELS, PAPER, Theme, colour, hexadecimal, ink
from clearhead.lens.views.pattern import is_triangle

if TYPE_CHECKING:
    from clearhead.lens.report import AttentionReport

_THEMES: tuple[Theme, Theme] = ("light", "dark")


def draw(report: AttentionReport) -> str:
    """A whole page, made from page.html beside this file."""
    triangle = is_triangle(report.pattern_TS)
    rows = report.pattern_TS.tolist()
    tokens = [token.text for token in report.tokens]
    data = {
        "tokens": tokens,
        "names": names(tokens),
        "heading": heading(tokens),
        "rows": [
            [round(weight, 4) for weight in (row[: query + 1] if triangle else row)] for query, row in enumerate(rows)
        ],
        "triangle": triangle,
        "next": [[token.text, round(token.probability, 5)] for token in report.next_tokens],
        "glances": [[glance.layer, glance.head, glance.key, round(glance.weight, 4)] for glance in report.glances],
        "levels": LEVELS,
        "ramp": {theme: [hexadecimal(colour(step, theme)) for step in range(LEVELS + 1)] for theme in _THEMES},
        "ink": {theme: [hexadecimal(ink(colour(step, theme))) for step in range(LEVELS + 1)] for theme in _THEMES},
    }
    page = files("clearhead.lens.views").joinpath("page.html").read_text(encoding="utf-8")
    parts = {
        "@TITLE@": escape(report.title),
        "@WHY@": escape(report.why),
        "@LIGHT@": variables("light"),
        "@DARK@": variables("dark"),
        # "<" is spelled out, so that no token can close the script.
        "@DATA@": json.dumps(data, ensure_ascii=True, separators=(",", ":")).replace("<", "\\u003c"),
    }
    for mark, text in parts.items():
        page = page.replace(mark, text)
    return page


def variables(theme: Theme) -> str:
    """The colours of a page as properties in its style."""
    ground, plain, faint = map(hexadecimal, PAPER[theme])
    return f"color-scheme:{theme};--paper:{ground};--ink:{plain};--faint:{faint};--bar:{hexadecimal(BAR)}"
