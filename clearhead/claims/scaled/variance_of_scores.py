"""The dot product of two vectors of unit variance has variance d, and the divisor brings it back to one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.one_head import one_head, scale_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTHS = (16, 32, 64, 128, 256, 512, 1024)
SHOWN = 128
PAIRS = 40_000
Draw = Callable[[tuple[int, ...], torch.Generator], Tensor]


def normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator)


def signs(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """-1 and 1, which have mean 0 and variance 1 too."""
    return torch.randint(2, shape, generator=generator) * 2.0 - 1


def measure(run: Run) -> Measured:
    generator = torch.Generator().manual_seed(run.seed)
    raw, scaled = {}, {}
    for d in WIDTHS:
        scores = scores_of(d, 1.0, normal, generator)
        raw[d] = float(scores.var())
        scaled[d] = float(scores_of(d, scale_of(d), normal, generator).var())
        if d == SHOWN:
            shown = scores
    by_width = {d: raw[d] / d for d in WIDTHS}
    spread = math.sqrt(raw[SHOWN])
    return Measured(
        values={
            "least variance / d": min(by_width.values()),
            "largest variance / d": max(by_width.values()),
            "spread at d = 128": spread,
            "share within one spread at d = 128": float((shown.abs() <= math.sqrt(SHOWN)).float().mean()),
            "least variance, scaled": min(scaled.values()),
            "largest variance, scaled": max(scaled.values()),
            "variance / d, of signs at d = 128": float(scores_of(SHOWN, 1.0, signs, generator).var()) / SHOWN,
        },
        series={
            "widths": WIDTHS,
            "raw": list(raw.values()),
            "scaled": list(scaled.values()),
            "histogram": torch.histc(shown, 48, -48, 48).tolist(),
        },
    )


def scores_of(d: int, scale: float, draw: Draw, generator: torch.Generator) -> Tensor:
    """Scores of pairs, each of a query and a key of its own."""
    q_BTK, k_BSK = (draw((PAIRS, 1, d), generator) for _ in range(2))
    return one_head(q_BTK, k_BSK, scale=scale).scores_BHTS.flatten()


def draw(results: Sequence[Measured]) -> Figure:
    figure, (axes, shown) = figures.panels(2, width=5.6)
    widths = results[0].series["widths"]
    for (name, says), style in zip((("raw", "q.k"), ("scaled", "q.k / sqrt(d)")), figures.styles(), strict=False):
        figures.curve(axes, widths, [result.series[name] for result in results], says, style)
    axes.plot(widths, widths, color=figures.INK, linewidth=1, linestyle=(0, (1, 2)), label="d, by theory")
    figures.mark(axes, 1.0, "mark: 1, within 5 %")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("width of a head, d")
    axes.set_ylabel("variance of scores")
    axes.legend(loc="upper left")
    counts = results[0].series["histogram"]
    shown.bar([2 * i - 47 for i in range(48)], counts, width=1.8, color=figures.COLOURS[0], alpha=0.75)
    for side, says in ((-1, ""), (1, "one standard deviation: 11.3")):
        figures.mark(shown, side * math.sqrt(SHOWN), says, across=False)
    shown.set_ylim(0, 1.9 * max(counts))
    shown.set_xlabel("score at d = 128, not divided")
    shown.set_ylabel(f"pairs, of {PAIRS:,}")
    return figure


CLAIM = Claim(
    says="The dot product of a query and a key whose components have unit variance has variance d. At d = 128 scores "
    "lie around +-11, which is one standard deviation; dividing by sqrt(d) brings the variance back to 1.",
    source=Source(statements=(25,), paper="Vaswani 2017, section 3.2.1, footnote 4"),
    how=f"{PAIRS:,} pairs of a query and a key, each with independent normal components of mean 0 and variance 1, are "
    "scored by the library's attention, without a scale and with the one that a head of that width has, for d from 16 "
    "to 1,024. Beside it, components of -1 and 1, since only mean and variance matter.",
    marks=(
        *(
            Mark(
                of=name,
                low=0.95,
                high=1.05,
                why=f"One standard error of a variance from {PAIRS:,} pairs is 0.7 %; seven widths stay within 5 %.",
            )
            for name in (
                "least variance / d",
                "largest variance / d",
                "least variance, scaled",
                "largest variance, scaled",
            )
        ),
        Mark(of="spread at d = 128", low=11.0, high=11.6, why="sqrt(128) = 11.31, with a standard error of 0.04."),
    ),
    measure=measure,
    draw=draw,
    seeds=3,
    cost=Cost(minutes=0.1),
)
