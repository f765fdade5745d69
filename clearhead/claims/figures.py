"""What the figures of claims have in common: paper and ink, curves told apart without colour, marks drawn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#0b3c8e", "#af3903", "#0b7f57", "#a2578c", "#6b6a00", "#3d3d46")
LINES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
MARKERS = ("o", "s", "^", "D", "v", "P")
INK, FAINT, GRID, PAPER = "#1b1b22", "#5d5c68", "#dedbd2", "#fbfaf6"
RC: Any = {
    "figure.facecolor": PAPER,
    "axes.facecolor": PAPER,
    "savefig.facecolor": PAPER,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": GRID,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "font.family": "sans-serif",
    "font.size": 10,
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text: it can be read aloud, and searched
    "svg.hashsalt": "clearhead",  # the same figure is the same file
}


def panels(
    n: int = 1, *, across: int | None = None, width: float = 6.4, height: float = 4.0
) -> tuple[Figure, list[Axes]]:
    """A figure of `n` panels, each of that size in inches, `across` of them (or all) beside one another."""
    from matplotlib.figure import Figure

    across = across or n
    rows = -(-n // across)
    figure = Figure(figsize=(width * across, height * rows), layout="constrained")
    return figure, [figure.add_subplot(rows, across, i + 1) for i in range(n)]


def styles() -> Iterator[dict[str, Any]]:
    """How one curve after another is drawn: colour, dashes and marker all differ."""
    return (
        {"color": colour, "linestyle": line, "marker": marker, "markersize": 4.5, "linewidth": 1.8}
        for colour, line, marker in itertools.cycle(zip(COLOURS, LINES, MARKERS, strict=True))
    )


def curve(axes: Axes, x: Sequence[float], runs: Sequence[Sequence[float]], name: str, style: dict[str, Any]) -> None:
    """The mean over runs (one row a seed), and what lies between the least and the greatest as a band."""
    columns = list(zip(*runs, strict=True))
    axes.plot(x, [sum(column) / len(column) for column in columns], label=name, **style)
    if len(runs) > 1:
        axes.fill_between(
            x, [min(c) for c in columns], [max(c) for c in columns], color=style["color"], alpha=0.15, lw=0
        )


def bars(axes: Axes, names: Sequence[str], runs: Sequence[Sequence[float]], *, say: str = "{:.3g}") -> None:
    """A bar a name, as high as the mean over runs (one row a seed); a line from the least to the greatest."""
    for i, column in enumerate(zip(*runs, strict=True)):
        mean = sum(column) / len(column)
        axes.bar(i, mean, color=COLOURS[0], alpha=0.75, width=0.62)
        if len(column) > 1:
            axes.vlines(i, min(column), max(column), color=INK, linewidth=1.5)
        axes.annotate(
            say.format(mean),
            (i, max(mean, *column)),
            ha="center",
            va="bottom",
            xytext=(0, 3),
            textcoords="offset points",
        )
    axes.set_xticks(range(len(names)), names)
    axes.grid(visible=False, axis="x")


def mark(axes: Axes, value: float, says: str, *, across: bool = True) -> None:
    """A pass mark: a line over the whole panel, and what it says; at a height, or (not `across`) at a place."""
    line = axes.axhline if across else axes.axvline
    line(value, color=INK, linewidth=1.2, linestyle=(0, (6, 3)))
    at, move, turned = ((1, value), (-2, 3), 0) if across else ((value, 1), (3, -4), 90)
    axes.annotate(
        says,
        at,
        xycoords=("axes fraction", "data") if across else ("data", "axes fraction"),
        xytext=move,
        textcoords="offset points",
        ha="right" if across else "left",
        va="bottom" if across else "top",
        rotation=turned,
        fontsize=9,
        color=INK,
    )


def heat(
    axes: Axes,
    rows: Sequence[Sequence[float]],
    *,
    row_names: Sequence[str],
    column_names: Sequence[str],
    say: str = "{:.2f}",
) -> None:
    """A map of numbers, darker where more, each number printed in its cell."""
    axes.imshow(rows, cmap="Blues", aspect="auto")
    top = max(max(row) for row in rows)
    for i, row in enumerate(rows):
        for j, value in enumerate(row):
            axes.text(
                j, i, say.format(value), ha="center", va="center", fontsize=8, color=PAPER if value > 0.6 * top else INK
            )
    axes.set_xticks(range(len(column_names)), column_names)
    axes.set_yticks(range(len(row_names)), row_names)
    axes.grid(visible=False)


@contextmanager
def style() -> Iterator[None]:
    """The look of all figures: what calls a claim's `draw`, and saves what it gives, does so inside this."""
    import matplotlib

    with matplotlib.rc_context(RC):
        yield
