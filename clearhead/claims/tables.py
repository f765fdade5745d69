"""Tables in the terminal, whose cells are wrapped where they are too wide for it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from clearhead.claims import words
from clearhead.claims.verdict import FAILS, HOLDS, Verdict

STYLES = {HOLDS: "green", FAILS: "red"}
SHORT = 24
"""Cells of no more characters are not wrapped."""


def table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str | Text]],
    *,
    right: Collection[str] = (),
    cut: Collection[str] = (),
) -> Table:
    """Aligned columns without lines between them.

    Args:
        right: heads of columns whose cells stand to the right.
        cut: of columns whose cells are cut where there is no room, and not wrapped.
    """
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_header=any(heads))
    for i, head in enumerate(heads):
        short = all(len(row[i]) <= SHORT for row in rows)
        justify: JustifyMethod = "right" if head in right else "left"
        made.add_column(head, justify=justify, no_wrap=short, overflow="fold")
    for row in rows:
        cells = [Text(cell) if isinstance(cell, str) else cell for cell in row]
        for head, cell in zip(heads, cells, strict=True):
            if head in cut:
                cell.no_wrap, cell.overflow = True, "ellipsis"
        made.add_row(*cells)
    return made


def verdict(given: Verdict) -> Text:
    """With its sign, and in its colour."""
    return Text(f"{words.sign(given)} {given}", STYLES.get(given, "yellow"))


def show(made: Table) -> None:
    """On standard output, as wide as the terminal; where there is none, a row a line."""
    console = Console()
    if console.is_terminal:
        console.print(made)
        return
    console = Console(width=1000)
    with console.capture() as caught:
        console.print(made)
    print("\n".join(line.rstrip() for line in caught.get().splitlines()))
