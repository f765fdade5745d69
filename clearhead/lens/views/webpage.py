"""One HTML file: everything in it, nothing fetched. pages/frame.html is around them all; the rest is a file a kind."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from html import escape
from importlib.resources import files
from typing import Any

from clearhead.lens.views.palette import BAR, HEADS, LEVELS, PAPER, THEMES, Theme, hexadecimal, tones


def page(
    kind: str, title: str, note: str, data: Mapping[str, Any], packs: Mapping[str, str] | None = None, above: str = ""
) -> str:
    """The page of pages/`kind`.html. data: what its script finds as `D`; packs: {name: what `pack.packed` gave}; above:
    markup that comes first.
    """
    parts = {
        "@TITLE@": escape(title),
        "@NOTE@": escape(note),
        "@ABOVE@": above,
        "@LIGHT@": variables("light"),
        "@DARK@": variables("dark"),
        "@PACKS@": "".join(
            f'<script type="text/plain" id="{escape(name)}">{text}</script>\n' for name, text in (packs or {}).items()
        ),
        # "<" is spelled out, so that no token can close the script.
        "@DATA@": json.dumps({**data, "colours": _colours()}, ensure_ascii=True, separators=(",", ":")).replace(
            "<", "\\u003c"
        ),
    }
    text = _template("frame").replace("@BODY@", _template(kind))
    # In one go, so that what stands in a token is never taken for a mark.
    return re.sub("|".join(parts), lambda mark: parts[mark.group()], text)


def _template(name: str) -> str:
    return files("clearhead.lens.views").joinpath("pages", f"{name}.html").read_text(encoding="utf-8")


def _colours() -> dict[str, dict[str, list[str]]]:
    """By theme: "c" for weights, "d" for numbers with a sign (see `palette.tones`), "heads" for lines."""
    return {
        theme: {
            "c": [hexadecimal(tones(theme)[f"c{step}"]) for step in range(LEVELS + 1)],
            "d": [hexadecimal(tones(theme)[f"d{step}"]) for step in range(LEVELS + 1)],
            "heads": [hexadecimal(shade) for shade in HEADS[theme]],
        }
        for theme in THEMES
    }


def variables(theme: Theme) -> str:
    """The colours of a page as properties in its style."""
    ground, plain, faint = map(hexadecimal, PAPER[theme])
    return f"color-scheme:{theme};--paper:{ground};--ink:{plain};--faint:{faint};--bar:{hexadecimal(BAR)}"
