"""Heads in the terminal: a picture of layers by heads, coloured by what each does, and a line a head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.color import Color
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from clearhead.lens.heads.roles import UNKNOWN
from clearhead.lens.views.palette import ink
from clearhead.lens.views.screen import theme_of
from clearhead.lens.views.terminal import BOLD, DIM

if TYPE_CHECKING:
    from clearhead.lens.heads.table import Head, Heads

# Okabe and Ito's colours (2008), which the colour-blind can tell apart, darker and lighter again where they run out.
COLOURS = (
    (230, 159, 0),
    (86, 180, 233),
    (0, 158, 115),
    (240, 228, 66),
    (0, 114, 178),
    (213, 94, 0),
    (204, 121, 167),
    (150, 100, 0),
    (160, 220, 250),
    (0, 90, 65),
    (150, 140, 20),
    (235, 190, 215),
)


def print_heads(heads: Heads, console: Console | None = None) -> None:
    console = console or Console()
    styles = _styles(heads, colour=theme_of(console) is not None)
    console.print(Text(heads.title, style=BOLD))
    console.print(_picture(heads, styles, console.width), soft_wrap=True)
    console.print(_lines(heads, styles), soft_wrap=True)
    console.print(Text(heads.note, style=DIM))
    for reason in heads.left_out:
        console.print(Text(f"Not asked: {reason}.", style=DIM))


def _styles(heads: Heads, colour: bool) -> dict[str, Style]:
    """A colour a role, in the order in which they are met."""
    roles = [role for role in dict.fromkeys(head.role for head in heads) if role != UNKNOWN]
    found = {UNKNOWN: DIM}
    for number, role in enumerate(roles):
        ground = COLOURS[number % len(COLOURS)]
        style = Style(color=Color.from_rgb(*ink(ground)), bgcolor=Color.from_rgb(*ground))
        found[role] = style if colour else Style.null()
    return found


def _picture(heads: Heads, styles: dict[str, Style], width: int) -> Text:
    """A row a layer, a cell a head; where the words are too wide, their first letters."""
    rows = list(zip(heads.row_labels, heads.cells, _roles(heads), strict=True))
    label = max(cell_len(name) for name, _, _ in rows) + 1
    columns = len(heads.column_labels)
    widest = max(cell_len(word) for _, words, _ in rows for word in words)
    wide = max(2, min(widest + 1, (width - label) // columns))
    text = Text(" " * label + "".join(name[: wide - 1].ljust(wide) for name in heads.column_labels) + "\n", style=DIM)
    for name, words, roles in rows:
        text.append(name.rjust(label - 1) + " ", DIM)
        for word, role in zip(words, roles, strict=True):
            text.append(word[: wide - 1].ljust(wide - 1), styles.get(role, DIM)).append(" ")
        text.append("\n")
    return text


def _roles(heads: Heads) -> list[list[str]]:
    by_row: dict[tuple[str, int], dict[int, str]] = {}
    for head in heads:
        by_row.setdefault((head.part, head.layer), {})[head.head] = head.role
    return [[row.get(n, "") for n in range(len(heads.column_labels))] for row in by_row.values()]


def _lines(heads: Heads, styles: dict[str, Style]) -> Table:
    table = Table(box=None, pad_edge=False, header_style=DIM)
    copies, reads = any(head.copying for head in heads), any(head.reads for head in heads)
    for name in ("head", "does", "score", "control", "sure", "also", "rests", "entropy", "distance"):
        table.add_column(name, justify="left" if name in ("head", "does", "also") else "right")
    if copies:
        table.add_column("copying", justify="right")
    if reads:
        table.add_column("reads")
    for head in heads:
        cells = _line(head, styles)
        if copies:
            cells.append(Text("" if head.copying is None else f"{head.copying.score:+.2f}"))
        if reads:
            cells.append(Text(", ".join(f"{r.way} of {r.layer}.{r.head} {r.times:.1f}x" for r in head.reads), DIM))
        table.add_row(*cells)
    return table


def _line(head: Head, styles: dict[str, Style]) -> list[Text]:
    best, rests = head.best, head.measures.get("first token")
    sure = ("", "", "") if best is None else (f"{best.score:.2f}", f"{best.control:.2f}", f"{best.sure:.0f} sd")
    also = ", ".join(f"{name} {head.measures[name].score:.2f}" for name in head.also if name != "first token")
    return [
        Text(head.name),
        Text(head.role, styles[head.role]),
        *map(Text, sure),
        Text(also, DIM),
        Text("" if rests is None else f"{rests.score:.2f}", DIM),
        Text(f"{head.looks.entropy:.1f}", DIM),
        Text(f"{head.looks.distance:.1f}", DIM),
    ]
