"""Where every head looks, at one glance: a grid of layers and heads, or the strongest heads where that is too wide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Group
from rich.text import Text

from clearhead.lens.views.labels import bare, names
from clearhead.lens.views.palette import Theme
from clearhead.lens.views.terminal import BOLD, DIM, STRONG, cell

if TYPE_CHECKING:
    from clearhead.lens.report import Glance

_LIST = 12
_NAME = 10


def glance_grid(glances: Sequence[Glance], labels: Sequence[str], *, width: int, theme: Theme | None) -> Group:
    """A line a layer, a column a head: the token it looks at most and how much, in percent."""
    words = names(labels, _NAME)
    wide = max(cell_len(words[glance.key]) for glance in glances) + 6
    n_heads = max(glance.head for glance in glances) + 1
    if 5 + n_heads * wide > width:
        return _strongest(glances, words, theme)
    word = "head " if wide >= 9 + (n_heads > 10) else ""
    lines = [Text("layer" + "".join(f"  {word}{head}".ljust(wide) for head in range(n_heads)), style=DIM)]
    for layer in sorted({glance.layer for glance in glances}):
        line = Text().append(f"{layer:>5}", DIM)
        for glance in glances:
            if glance.layer == layer:
                line.append("  ")
                _glance(line, glance, words, wide - 2, theme)
        lines.append(line)
    return Group(*lines)


def heading(labels: Sequence[str]) -> str:
    """What the grid shows. In a text of three tokens or fewer, every token counts."""
    return f"Where each head looks from {bare(labels[-1])}" + (", further back than its neighbour" * (len(labels) > 3))


def _glance(line: Text, glance: Glance, words: Sequence[str], wide: int, theme: Theme | None) -> Text:
    line.append(*cell(glance.weight, 3, theme))
    name = words[glance.key]
    line.append(" " + name, BOLD if glance.weight >= STRONG else DIM)
    return line.append(" " * (wide - 4 - cell_len(name)))


def _strongest(glances: Sequence[Glance], words: Sequence[str], theme: Theme | None) -> Group:
    """The strongest heads, a line each."""
    lines = []
    for glance in sorted(glances, key=lambda glance: -glance.weight)[:_LIST]:
        line = Text().append(f"layer {glance.layer:>2}, head {glance.head:>2}  ", DIM)
        lines.append(_glance(line, glance, words, 0, theme))
    if len(glances) > _LIST:
        lines.append(Text(f"and {len(glances) - _LIST} more heads, weaker", style=DIM))
    return Group(*lines)
