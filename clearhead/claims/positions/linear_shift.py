"""A step of k places is one rotation of the sinusoidal encoding, wherever it starts."""

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

WIDTH, FARTHEST, PLACES = 32, 40_000, 8_000
"""The slowest of so many waves turns once in 35,000 places, so places are drawn from a little more."""
STEPS = (1, 10, 100)


def shift(table_ND: Tensor, place_N: Tensor, step: int) -> tuple[float, Tensor]:
    """The matrix that takes a vector to the one `step` places on, by least squares over half of the places; and what is
    left of the other half, by the size of the vectors.
    """
    here_ND, there_ND = table_ND[place_N], table_ND[place_N + step]
    half = len(here_ND) // 2
    map_DD = torch.linalg.lstsq(here_ND[:half], there_ND[:half]).solution
    left_ND = there_ND[half:] - here_ND[half:] @ map_DD
    return float(left_ND.norm() / there_ND[half:].norm()), map_DD


def measure(run: Run) -> Measured:
    generator = torch.Generator().manual_seed(run.seed)
    n = FARTHEST + max(STEPS)
    place_N = torch.randperm(FARTHEST, generator=generator)[:PLACES]
    sinusoids_ND = positions.sinusoids(torch.arange(n), WIDTH).double()
    random_ND = torch.randn(n, WIDTH, generator=generator, dtype=torch.float64)
    residual, other, square, turned, maps = [], [], [], [], {}
    for step in STEPS:
        left, map_DD = shift(sinusoids_ND, place_N, step)
        residual.append(left)
        other.append(shift(random_ND, place_N, step)[0])
        square.append(float((map_DD.T @ map_DD - torch.eye(WIDTH)).abs().max()))
        turned.append(float((map_DD - rotation(step)).abs().max()))
        maps[str(step)] = map_DD.tolist()
    return Measured(
        values={
            "largest residual": max(residual),
            "largest error of being a rotation (M^T M = 1)": max(square),
            "largest error against each pair turned by its own angle": max(turned),
            "smallest residual of a random table": min(other),
            **{f"residual, {step} on": left for step, left in zip(STEPS, residual, strict=True)},
        },
        series={"sinusoids": residual, "random": other, "map": maps[str(STEPS[1])]},
    )


def rotation(step: int) -> Tensor:
    """Each pair (sin, cos) turned by `step` times its frequency, as sin(a + b) and cos(a + b) are taken apart."""
    angle_K = step * 10_000.0 ** (-torch.arange(0, WIDTH, 2).double() / WIDTH)
    pairs_K22 = torch.stack([angle_K.cos(), -angle_K.sin(), angle_K.sin(), angle_K.cos()], -1).unflatten(-1, (2, 2))
    blocks_DD: Tensor = torch.block_diag(*pairs_K22)
    return blocks_DD


def draw(results: Sequence[Measured]) -> Figure:
    series = results[0].series
    figure, (axes, matrix) = figures.panels(2, width=5.2)
    for (key, name), style in zip(
        {"random": "random table", "sinusoids": "sinusoids"}.items(), figures.styles(), strict=False
    ):
        axes.plot(range(len(STEPS)), series[key], label=name, **style)
    axes.set_yscale("log")
    axes.set_ylim(1e-7, 10)
    figures.mark(axes, 5e-3, "mark of sinusoids")
    axes.set_xticks(range(len(STEPS)), [str(step) for step in STEPS])
    axes.set_xlabel("places on")
    axes.set_ylabel("what one matrix leaves over, in places not fitted")
    axes.legend(loc="center right", bbox_to_anchor=(1, 0.74))
    image = matrix.imshow(series["map"], cmap="RdBu", vmin=-1, vmax=1)
    figure.colorbar(image, ax=matrix, shrink=0.8, label="weight")
    matrix.set_title(f"the matrix found for {STEPS[1]} places on: pairs that turn", fontsize=10)
    matrix.set_xlabel("to dimension")
    matrix.set_ylabel("from dimension")
    matrix.grid(visible=False)
    return figure


CLAIM = Claim(
    says="In the sinusoidal encoding a step of k places is one linear map, the same wherever it starts: each pair "
    "turns by its own angle.",
    source=Source(statements=(37,), paper="Vaswani 2017, section 3.5: PE(pos + k) is a linear function of PE(pos)"),
    how="For steps of 1, 10 and 100 places, least squares in float64 finds the matrix that takes the vector of each of "
    "4,000 places, drawn from 40,000, to the one that far on; on 4,000 other places, which it was not fitted to, what "
    "it leaves over is measured, by the size of the vectors. Whether it is a rotation is M^T M = 1, and whether it is "
    "the one that the sine and cosine of a sum give, by its distance from that. A table of random vectors, as learned "
    "ones begin, is the control. The library's tables are float32, which rounds an angle of 40,000 radians by up to "
    "2e-3 and smaller ones by less: so the marks are not 1e-12, and what is measured may lie well below them.",
    marks=(
        Mark(of="largest residual", high=5e-3, why="A few times the rounding of the largest angles in float32."),
        Mark(of="largest error of being a rotation (M^T M = 1)", high=5e-3, why="The same."),
        Mark(of="largest error against each pair turned by its own angle", high=5e-3, why="The same."),
        Mark(
            of="smallest residual of a random table",
            low=0.9,
            why="Where no map exists nearly all is left: 32 numbers can't fit 4,000 places by chance.",
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.02),
)
