"""An attention pattern and its company as text for a terminal, with colour and without."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.color import Color
from rich.console import Group, RenderableType
from rich.style import Style
from rich.text import Text
from torch import Tensor

from clearhead.lens.views.labels import isolated, names, shorten
from clearhead.lens.views.palette import BAR, LEVELS, Theme, colour, ink, level
from clearhead.lens.views.pattern import is_triangle, last, strongest

DIM = Style(dim=True)
BOLD = Style(bold=True)
STRONG = 0.2
"""From here on a link is worth bold type."""
BLOCKS = " ░▒▓█"
_EIGHTHS = " ▏▎▍▌▋▊▉█"
_LABEL = 18
"""Columns a token may take beside the map."""


def cell(weight: float, columns: int, theme: Theme | None) -> tuple[str, Style]:
    """One cell of a map: percent where there is room for it, on a coloured ground; blocks where there is no colour."""
    percent = f"{100 * weight:.0f}"
    text = (percent if columns >= 3 and percent != "0" else "").rjust(3).ljust(columns)[:columns]
    if theme is not None:
        step = level(weight)
        ground = colour(step, theme)
        return text, Style(color=Color.from_rgb(*ink(ground)), bgcolor=Color.from_rgb(*ground))
    if columns >= 3:
        return (text if percent != "0" else "\N{MIDDLE DOT}".rjust(3).ljust(columns)), Style.null()
    return BLOCKS[round(level(weight) / LEVELS * (len(BLOCKS) - 1))] * columns, Style.null()


def attention_map(
    pattern_TS: Tensor, labels: Sequence[str], *, width: int, theme: Theme | None, key: bool = True
) -> Group:
    """A row a token, a cell a token looked at, in at most `width` columns.

    pattern_TS: (T, T), rows sum to one. labels: T readable tokens. theme None: no colour. A causal pattern is drawn as
    a staircase with each token at the end of its row, which is also the top of its own column. A text too long for the
    width is cut to its last tokens, and the column "…" holds what they gave to the rest. key: with a legend below.
    """
    tags = [shorten(label, _LABEL) for label in labels]
    n = len(tags)
    for columns in (4, 3, 2, 1):
        if _needed(tags, columns) <= width:
            break
    shown = n if _needed(tags, columns) <= width else max(1, width - _index_width(n) - 2 - _LABEL)
    grid = pattern_TS if shown == n else last(pattern_TS, shown)
    rows: list[RenderableType] = []
    if shown < n:
        rows.append(Text(f"the last {shown} of {n} tokens; column … adds up the {n - shown} before", style=DIM))
    triangle = is_triangle(pattern_TS)
    draw = _staircase if triangle else _square
    rows += draw(grid, tags, columns, theme, cut=n - shown)
    return Group(*rows, *([legend(theme, columns, triangle=triangle)] if key else []))


def _index_width(n: int) -> int:
    return len(str(n - 1)) + 1


def _needed(tags: Sequence[str], columns: int) -> int:
    widest = max((row + 1) * columns + 1 + cell_len(name) for row, name in enumerate(tags))
    square = len(tags) * columns + 1 + max(cell_len(name) for name in tags)
    return _index_width(len(tags)) + max(widest, square)


def _cells(row_S: list[float], columns: int, theme: Theme | None) -> Text:
    line = Text()
    for weight in row_S:
        line.append(*cell(weight, columns, theme))
    return line


def _staircase(grid: Tensor, tags: Sequence[str], columns: int, theme: Theme | None, cut: int) -> list[Text]:
    index = _index_width(len(tags)) - 1
    rows = [Text(" " * (index + 1) + "…".rjust(min(columns, 3)), style=DIM)] if cut else []
    for place, values in enumerate(grid.tolist()):
        query = cut + place
        line = Text().append(f"{query:>{index}} ", DIM)
        line.append_text(_cells(values[: place + 1 + (cut > 0)], columns, theme))
        rows.append(line.append(" " + tags[query], BOLD if query == len(tags) - 1 else ""))
    return rows


def _square(grid: Tensor, tags: Sequence[str], columns: int, theme: Theme | None, cut: int) -> list[Text]:
    index = _index_width(len(tags)) - 1
    shown = range(cut, len(tags))
    label = max(cell_len(tags[query]) for query in shown)
    # Digits above the columns: whole numbers where they fit, the last digits where they don't.
    heads = ["…"] * (cut > 0) + [str(key)[-max(1, min(columns, 4) - 1) :] for key in shown]
    rows = [
        Text(
            " " * (index + 1 + label + 1) + "".join(head.rjust(min(columns, 3)).ljust(columns) for head in heads),
            style=DIM,
        )
    ]
    for query, values in zip(shown, grid.tolist(), strict=True):
        name = tags[query] + " " * (label - cell_len(tags[query]) + 1)
        line = Text().append(f"{query:>{index}} ", DIM).append(name, BOLD if query == len(tags) - 1 else "")
        rows.append(line.append_text(_cells(values, columns, theme)))
    return rows


def legend(theme: Theme | None, columns: int, *, triangle: bool) -> Text:
    """What the colours, blocks or numbers mean, and how to read the map."""
    line = Text()
    steps = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0)
    if theme is not None:
        for weight in steps:
            line.append(f"{100 * weight:.0f}".rjust(3) + " ", cell(weight, 4, theme)[1])
        line.append(" percent\n", DIM)
    elif columns < 3:
        scale = "".join(f"{cell(weight, 1, None)[0]} {100 * weight:.0f}  " for weight in steps[1:])
        line.append(scale + "percent\n", DIM)
    if triangle:
        order = "its cells are tokens 0, 1, 2 and so on, the last one itself"
    else:
        order = "each cell the token its column is numbered after"
    return line.append(f"A row is what one token looks at, {order}, in percent.", DIM)


def links(
    pattern_TS: Tensor, labels: Sequence[str], *, keys: Sequence[str] | None = None, most: int = 3, rows: int = 40
) -> Group:
    """The strongest links as a list, a line a token ("are ← keys 0.41, The 0.22"), the last `rows` of them.

    keys: the tokens looked at, where they are not the same text.
    """
    shown = range(max(0, len(labels) - rows), len(labels))
    words = names(labels, _LABEL)
    mirror = keys is None or list(keys) == list(labels)
    looked_at = words if mirror or keys is None else names(keys, _LABEL)
    wide = max(cell_len(words[query]) for query in shown)
    lines = []
    for query in shown:
        line = Text(" " * (wide - cell_len(words[query]))).append(isolated(words[query])).append(" ← ", DIM)
        found = strongest(pattern_TS, query, most)
        for place, link in enumerate(found):
            name = "itself" if mirror and link.key == query else isolated(looked_at[link.key])
            line.append(", " if place else "", DIM)
            line.append(name, BOLD if link.weight >= STRONG else "").append(f" {link.weight:.2f}", DIM)
        lines.append(line if found else line.append("nothing", DIM))
    if shown.start:
        lines.insert(0, Text(f"… {shown.start} tokens before", style=DIM))
    return Group(*lines)


def bars(tokens: Sequence[str], shares: Sequence[float], *, width: int, theme: Theme | None) -> Group:
    """Shares between 0 and 1 as bars, one a line: name, bar, percent. The longest bar is the largest share."""
    labels = [shorten(token, _LABEL) for token in tokens]
    wide = max((cell_len(label) for label in labels), default=0)
    room = max(8, min(40, width - wide - 12))
    top = max(shares, default=0.0) or 1.0
    lines = []
    for label, share in zip(labels, shares, strict=True):
        eighths = round(share / top * room * 8)
        bar = "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
        line = Text(" " * (wide - cell_len(label)) + label + "  ")
        line.append(bar, Style(color=Color.from_rgb(*BAR)) if theme is not None else "")
        lines.append(line.append(f" {100 * share:.1f} %", DIM))
    return Group(*lines)
