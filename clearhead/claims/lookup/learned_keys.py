"""Attention is differentiable, so gradient descent learns where queries and keys point."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.fitting import fit
from clearhead.claims.ingredients.one_head import one_head, scale_of
from clearhead.ops.attention import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ITEMS, WIDTH, STEPS = 16, 32, 200
ASKED = 64
"""Questions a step; each is one of the queries."""


class Store(nn.Module):
    """An associative store: one value a key, and queries that ask for them. All begin at random; the values stay so."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self.q_IK = nn.Parameter(torch.randn(ITEMS, WIDTH, generator=generator))
        self.k_IK = nn.Parameter(torch.randn(ITEMS, WIDTH, generator=generator))
        self.v_IK = torch.randn(ITEMS, WIDTH, generator=generator)

    def ask(self, items_N: Tensor) -> Trace:
        """The library's attention, from the queries of these items to all keys."""
        return one_head(self.q_IK[items_N][None], self.k_IK[None], self.v_IK[None], scale=scale_of(WIDTH))

    def loss(self, items_N: Tensor) -> Tensor:
        """How far the answers are from the values asked for: squares, which know nothing of weights."""
        return F.mse_loss(self.ask(items_N).z_BHTV[0, 0], self.v_IK[items_N])

    @torch.no_grad()
    def read(self) -> tuple[float, float, float]:
        """The weight on the right key, the share of answers nearest to the right value, and the angle between a query
        and its key in degrees: means over items.
        """
        trace = self.ask(torch.arange(ITEMS))
        nearest_I = torch.cdist(trace.z_BHTV[0, 0], self.v_IK).argmin(-1)
        cosines_I = F.cosine_similarity(self.q_IK, self.k_IK)
        weight = float(trace.pattern_BHTS[0, 0].diagonal().mean())
        right = float((nearest_I == torch.arange(ITEMS)).double().mean())
        return weight, right, math.degrees(float(cosines_I.clamp(-1, 1).acos().mean()))


def measure(run: Run) -> Measured:
    generator = torch.Generator().manual_seed(run.seed)
    store = Store(generator)
    before, weights, angles = store.read(), [], []

    def see(step: int, loss: float) -> None:
        weight, _, angle = store.read()
        weights.append(weight)
        angles.append(angle)

    def loss(step: int) -> Tensor:
        return store.loss(torch.randint(ITEMS, (ASKED,), generator=generator))

    losses = fit(store, loss, STEPS, lr=0.05, tick=run.progress(STEPS, "steps"), seen=see)
    after = store.read()
    with torch.no_grad():
        likeness_II = F.normalize(store.q_IK, dim=-1) @ F.normalize(store.k_IK, dim=-1).T
    others = likeness_II[~torch.eye(ITEMS, dtype=torch.bool)]
    return Measured(
        values={
            "weight on the right key, before": before[0],
            "weight on the right key, after": after[0],
            "answers right, before": before[1],
            "answers right, after": after[1],
            "angle of a query and its key, before": before[2],
            "angle of a query and its key, after": after[2],
            "angle of a query and other keys, after": math.degrees(float(others.acos().mean())),
            "loss, after / before": losses[-1] / losses[0],
        },
        series={"weights": weights, "angles": angles, "likeness": likeness_II.tolist()},
    )


def draw(results: Sequence[Measured]) -> Figure:
    figure, (weights, angles) = figures.panels(2, width=5.6)
    steps = range(STEPS)
    for axes, name in ((weights, "weights"), (angles, "angles")):
        style = {**next(figures.styles()), "markevery": 20}
        figures.curve(axes, steps, [result.series[name] for result in results], "mean of items", style)
        axes.set_xlabel("steps of gradient descent")
    figures.mark(weights, 0.9, "mark: at the end above")
    weights.set_ylim(0, 1.05)
    weights.set_ylabel("weight on the right key")
    figures.mark(angles, 60, "mark: at the end below")
    angles.set_ylim(0, 100)
    angles.set_ylabel("angle of a query and its key (degrees)")
    return figure


CLAIM = Claim(
    says="A soft lookup is differentiable, so gradient descent learns where queries and keys point: each query turns "
    "to the key whose value is wanted.",
    source=Source(statements=(15,), paper="Bahdanau 2014, section 3.1 (the alignment is trained with all else)"),
    how="A store of 16 random values, whose queries and keys are random vectors of width 32, is asked for its values "
    "through the library's attention and trained by Adam, at a rate of 0.05, for 200 steps of 64 questions on the "
    "squares of what its answers are off. The values stay as they are. Nothing says which key belongs to which query "
    "but that error. The weight on the right key, the share of answers nearest to the right value, and the angle "
    "between a query and its key are read before and after.",
    marks=(
        Mark(of="weight on the right key, before", high=0.2, why="By chance a sixteenth, 0.06."),
        Mark(of="weight on the right key, after", low=0.9, why="Nearly a dictionary lookup."),
        Mark(of="answers right, after", low=1.0, why="Every value is found."),
        Mark(
            of="angle of a query and its key, before",
            low=80,
            high=100,
            unit="degrees",
            why="Random vectors of 32 numbers are at right angles, give or take 10 degrees; the mean of 16 is within "
            "3.",
        ),
        Mark(
            of="angle of a query and its key, after",
            high=60,
            unit="degrees",
            why="They have turned towards each other by far more than chance; they need not coincide, since only "
            "their dot product counts, against that with the other keys.",
        ),
    ),
    measure=measure,
    draw=draw,
    seeds=3,
    cost=Cost(minutes=0.03),
)
