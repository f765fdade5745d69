"""Sinusoids: wavelengths in geometric steps, and no two places alike."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.ops import positions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BASE, PLACES, ROWS = 10_000, 10_000, 500
"""The paper's base; how many places must differ; how many are compared with all others at a time."""


def wavelengths(table_ND: Tensor) -> Tensor:
    """Places in a whole turn of each pair, found from the numbers alone: the slope of the unwrapped angle."""
    sine_NK, cosine_NK = table_ND.double().unflatten(1, (-1, 2)).unbind(-1)
    angle_NK = torch.atan2(sine_NK, cosine_NK)
    turn_NK = torch.remainder(angle_NK.diff(dim=0) + math.pi, 2 * math.pi) - math.pi
    unwrapped_NK = turn_NK.cumsum(0)
    step_N1 = torch.arange(1, len(unwrapped_NK) + 1).double()[:, None]
    slope_K = (step_N1 * unwrapped_NK).sum(0) / step_N1.square().sum(0)
    return 2 * math.pi / slope_K


def nearest(table_ND: Tensor) -> tuple[float, int]:
    """The smallest distance between any two places, and how far apart those two stand."""
    best, apart, places = math.inf, 0, len(table_ND)
    # By a product of matrices where they are wide, which is far faster; its rounding hides distances below .01.
    how = "use_mm_for_euclid_dist" if table_ND.shape[1] > 2 else "donot_use_mm_for_euclid_dist"
    for start in range(0, places, ROWS):
        here_RD = table_ND[start : start + ROWS]
        distance_RN = torch.cdist(here_RD, table_ND, compute_mode=how)
        row_R = torch.arange(len(here_RD))
        distance_RN[row_R, start + row_R] = math.inf
        least, at = distance_RN.flatten().min(0)
        if float(least) < best:
            row, other = divmod(int(at), places)
            best, apart = float(least), abs(other - row - start)
    return best, apart


def measure(run: Run) -> Measured:
    d = 128 if run.quick else 512
    table_ND = positions.sinusoids(torch.arange(PLACES), d)
    found_K = wavelengths(table_ND)
    formula_K = 2 * math.pi * BASE ** (torch.arange(0, d, 2).double() / d)
    steps_K = found_K[1:] / found_K[:-1]
    all_pairs, apart = nearest(table_ND)
    fastest, fastest_apart = nearest(table_ND[:, :2])
    slowest, _ = nearest(table_ND[:, -2:])
    return Measured(
        values={
            "shortest wavelength, in 2 pi": float(found_K[0]) / (2 * math.pi),
            "longest wavelength, in 2 pi": float(found_K[-1]) / (2 * math.pi),
            "longest wavelength by what the paper gives": float(found_K[-1] / formula_K[-1]),
            "largest error of a step between neighbours": float((steps_K / BASE ** (2 / d) - 1).abs().max()),
            "largest error of a wavelength": float((found_K / formula_K - 1).abs().max()),
            "smallest distance of any two places": all_pairs,
            "places between those two": float(apart),
            "smallest distance by the fastest wave alone": fastest,
            "places between those two by the fastest wave": float(fastest_apart),
            "smallest distance by the slowest wave alone": slowest,
        },
        series={"found": found_K.tolist(), "formula": formula_K.tolist(), "d": d},
    )


def draw(results: Sequence[Measured]) -> Figure:
    series, values = results[0].series, results[0].values
    figure, (axes, distances) = figures.panels(2, width=5.6)
    pairs = range(len(series["found"]))
    few = max(1, len(pairs) // 32)
    axes.plot(pairs, series["formula"], color=figures.INK, linewidth=1.2, linestyle="--", label="2 pi x 10000^(2i/d)")
    axes.plot(pairs[::few], series["found"][::few], "o", color=figures.COLOURS[0], markersize=5, label="fitted")
    axes.set_yscale("log")
    axes.set_xlabel(f"pair i of {len(pairs)} (d = {series['d']})")
    axes.set_ylabel("wavelength in places")
    axes.legend()
    names = ("slowest wave\nalone", "fastest wave\nalone", "all waves")
    keys = ("by the slowest wave alone", "by the fastest wave alone", "of any two places")
    heights = [max(float(values[f"smallest distance {key}"]), 1e-9) for key in keys]  # type: ignore[arg-type]
    distances.bar(range(3), heights, color=figures.COLOURS[0], alpha=0.75, width=0.6)
    for i, height in enumerate(heights):
        distances.annotate(
            f"{height:.1e}" if height < 0.1 else f"{height:.2f}",
            (i, height),
            ha="center",
            va="bottom",
            xytext=(0, 3),
            textcoords="offset points",
        )
    distances.set_yscale("log")
    distances.set_ylim(1e-9, 100)
    figures.mark(distances, 0.5, "mark")
    distances.set_xlim(-0.6, 2.9)
    distances.set_xticks(range(3), names)
    distances.set_ylabel(f"smallest distance of any two of {PLACES:,} places")
    distances.grid(visible=False, axis="x")
    return figure


CLAIM = Claim(
    says="The waves of the sinusoidal encoding grow in equal ratios from a wavelength of 2 pi to about 10,000 x 2 pi, "
    "fast ones telling neighbours apart and slow ones distant places; together they mark each of 10,000 places as no "
    "other.",
    source=Source(statements=(35,), paper="Vaswani 2017, section 3.5"),
    how="The library's table of 10,000 places, 512 wide (128 in a quick run), is taken as numbers: from each pair's "
    "sine and cosine the angle is read, unwrapped, and a line fitted, whose slope gives the wavelength; the formula is "
    "only compared with it. The last pair has an exponent of (d - 2) / d and not 1, so the longest wave is 10000^((d - "
    "2) / d) x 2 pi, a little short of the 10000 x 2 pi that the paper rounds it to. Then every place's vector is "
    "compared with every other's, with all waves and, told and not judged, with the fastest or the slowest alone.",
    marks=(
        Mark(
            of="shortest wavelength, in 2 pi",
            low=1 - 1e-5,
            high=1 + 1e-5,
            why="The first pair turns by one radian a place; float32's angles allow 1e-7 a number.",
        ),
        Mark(
            of="longest wavelength by what the paper gives",
            low=1 - 1e-5,
            high=1 + 1e-5,
            why="It is 10000^((d - 2) / d) x 2 pi, but for float32's rounding.",
        ),
        Mark(
            of="largest error of a step between neighbours",
            high=1e-5,
            why="Geometric means that each is 10000^(2 / d) times the one before.",
        ),
        Mark(
            of="smallest distance of any two places",
            low=0.5,
            why="Each vector has a length of sqrt(d / 2), 16 at d = 512 and 8 at d = 128; a distance of 0.5 is far "
            "above float32's rounding of distances, 0.01.",
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.2),
)
