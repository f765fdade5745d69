"""A figure as the output of a notebook's cell."""

from __future__ import annotations

import base64
import io
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from clearhead.lens.views.drawn import Figure

MOST = 4_000_000
"""Pages of more characters than this are not put into a notebook, which is read and written whole every time."""
HEIGHT = 640
"""How high a page stands in a notebook, in pixels; longer ones scroll."""


def bundle(figure: Figure) -> dict[str, str]:
    """{kind: content}: the page in a frame of its own, so that it can't touch the notebook, nor that it; a picture for
    readers that run no scripts; and plain text.
    """
    picture = base64.b64encode(figure.png()).decode("ascii")
    page = figure.page()
    if len(page) <= MOST:
        shown = (
            f'<iframe srcdoc="{escape(page)}" sandbox="allow-scripts" loading="lazy"'
            f' style="width:100%;height:{HEIGHT}px;border:0"></iframe>'
        )
    else:
        shown = (
            f'<img src="data:image/png;base64,{picture}" style="max-width:100%">'
            f"<p>The page that answers to the pointer is {len(page) / 1e6:.0f} MB, too much for a notebook:"
            ' <code>.save("name.html")</code> writes it.</p>'
        )
    return {"text/plain": plain(figure), "image/png": picture, "text/html": shown}


def plain(figure: Figure) -> str:
    """As a terminal without colour shows it."""
    from rich.console import Console
    from rich.text import Text

    written = io.StringIO()
    console = Console(file=written, width=100, no_color=True, color_system=None, force_terminal=False)
    for part in figure.parts(console):
        console.print(part, soft_wrap=not isinstance(part, Text))
    return written.getvalue()
