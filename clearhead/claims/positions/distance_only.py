"""How alike two sinusoidal encodings are depends on their distance only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.ops import positions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTHS = (64, 128, 512)
FARTHEST = 200
"""The largest distance."""


def similarity(d: int, places: int) -> Tensor:
    """(places, distances from 0): the product of the vectors of a place and of the one so much farther on, by that of a
    vector with itself.
    """
    table_ND = positions.sinusoids(torch.arange(places + FARTHEST), d).double()
    windows_PDK = table_ND.unfold(0, FARTHEST + 1, 1)[:places]
    return torch.einsum("pd,pdk->pk", table_ND[:places], windows_PDK) / (d / 2)


def order_kept(curve_K: Tensor) -> float:
    """Of all pairs of distances, the share in which the nearer one is the more alike."""
    higher_KK = curve_K[:, None] > curve_K[None, :]
    nearer_KK = torch.ones_like(higher_KK).triu(1)
    return float(higher_KK[nearer_KK].double().mean())


def measure(run: Run) -> Measured:
    places = 200 if run.quick else 1000
    values: dict[str, float] = {}
    curves, turns = {}, {}
    for d in WIDTHS:
        similarity_PK = similarity(d, places)
        curve_K = similarity_PK.mean(0)
        rises = (curve_K.diff() > 0).nonzero().flatten()
        turns[str(d)] = int(rises[0]) if len(rises) else FARTHEST
        values |= {
            f"spread over places, d {d}": float((similarity_PK - curve_K).abs().max()),
            f"lead of distance 0, d {d}": float(curve_K[0] - curve_K[1:].max()),
            f"near (1 to 5) less far (100 to 200), d {d}": float(curve_K[1:6].mean() - curve_K[100:].mean()),
            f"distance at which it first turns up, d {d}": float(turns[str(d)]),
            f"share of two distances with the nearer higher, d {d}": order_kept(curve_K),
        }
        curves[str(d)] = curve_K.tolist()
    return Measured(values=values, series={"curves": curves, "turns": turns})


def draw(results: Sequence[Measured]) -> Figure:
    series = results[0].series
    figure, (axes, near) = figures.panels(2, width=5.6)
    for d, style in zip(WIDTHS, figures.styles(), strict=False):
        curve, turn = series["curves"][str(d)], series["turns"][str(d)]
        rest = {key: value for key, value in style.items() if key not in ("marker", "markersize")}
        for panel in (axes, near):
            panel.plot(range(len(curve)), curve, label=f"d = {d}, turns at {turn}", **rest)
            panel.plot(turn, curve[turn], marker=style["marker"], color=style["color"], markersize=8)
        near.annotate(
            f"{turn}",
            (turn, curve[turn]),
            xytext=(0, -15),
            textcoords="offset points",
            ha="center",
            color=style["color"],
        )
    figures.mark(axes, 0.98, "mark: at most, from distance 1 on")
    axes.set_ylabel("similarity, 1 of a vector with itself")
    axes.set_title("all distances", fontsize=10)
    near.set_title("the first 50: where it first turns up again", fontsize=10)
    near.set_xlim(-0.5, 50)
    for panel in (axes, near):
        panel.set_ylim(0, 1.05)
        panel.set_xlabel("distance in places")
    axes.legend()
    return figure


CLAIM = Claim(
    says="The product of two sinusoidal encodings depends on their distance only, so the same curve slides along with "
    "the place; it is highest at distance zero, and near places are more alike than far ones.",
    source=Source(statements=(36,), paper="Vaswani 2017, section 3.5 (it follows from equation PE)"),
    how="The library's tables, with d of 64, 128 and 512: every place of the first thousand (200 in a quick run) with "
    "those up to 200 farther on, as products divided by d / 2, which is that of an encoding with itself. For each "
    "distance, how much the product differs from place to place; how far distance zero leads; whether near ones (1 to "
    "5) are higher in the mean than far ones (100 to 200). That nearer is always higher is not so, and no mark asks "
    "for it: the curve falls only up to some distance, which is measured and marked in the figure, and ripples from "
    "there on; the share of pairs of distances that are in order is given.",
    marks=tuple(
        mark
        for d in WIDTHS
        for mark in (
            Mark(
                of=f"spread over places, d {d}",
                high=1e-4,
                why="Nothing but the rounding of float32's angles, 6e-8 x 1,200 places, is left.",
            ),
            Mark(
                of=f"lead of distance 0, d {d}",
                low=0.02,
                why="A peak stands out: 200 times the rounding at least.",
            ),
            Mark(
                of=f"near (1 to 5) less far (100 to 200), d {d}",
                low=0.2,
                why="Near and far differ by a fifth of the whole range, so that a head could tell them by it.",
            ),
        )
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.1),
)
