"""A whole report in the terminal: map, links, where each head looks, what comes next."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType
from rich.text import Text

from clearhead.lens.views.glances import glance_grid, heading
from clearhead.lens.views.palette import Theme
from clearhead.lens.views.terminal import BOLD, DIM, attention_map, bars, links

if TYPE_CHECKING:
    from clearhead.lens.report import AttentionReport


def theme_of(console: Console) -> Theme | None:
    """Dark or light ground, as far as the terminal tells (COLORFGBG); None: no colour, or too few to draw with."""
    if console.no_color or console.color_system not in ("256", "truecolor"):
        return None
    ground = os.environ.get("COLORFGBG", "").rpartition(";")[2]
    return "light" if ground in ("7", "15") else "dark"


def report_parts(report: AttentionReport, console: Console) -> list[RenderableType]:
    """All of `report` from top to bottom, as wide as the console."""
    theme = theme_of(console)
    labels = [token.text for token in report.tokens]
    parts: list[RenderableType] = [
        Text(report.title, style=BOLD),
        *([Text(report.why, style=DIM)] if report.why else []),
        Text(),
        attention_map(report.pattern_TS, labels, width=console.width, theme=theme),
        _heading("Strongest links"),
        links(report.pattern_TS, labels),
    ]
    if report.glances:
        parts += [
            _heading(heading(labels)),
            glance_grid(report.glances, labels, width=console.width, theme=theme),
        ]
    if report.next_tokens:
        names = [token.text for token in report.next_tokens]
        shares = [token.probability for token in report.next_tokens]
        parts += [_heading("What comes next"), bars(names, shares, width=console.width, theme=theme)]
    return parts


def _heading(text: str) -> Text:
    return Text(f"\n{text}", style=BOLD)
