"""Without the divisor the softmax's gradient dies as heads get wider; with it, it lives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.one_head import one_head, scale_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTHS = (16, 32, 64, 128, 256, 512, 1024)
KEYS, GROUPS, QUERIES = 16, 125, 16
"""Each group of queries has keys of its own: 2,000 queries."""


def measure(run: Run) -> Measured:
    generator = torch.Generator().manual_seed(run.seed)
    norms: dict[str, list[float]] = {"with": [], "without": []}
    means: dict[str, list[float]] = {"with": [], "without": []}
    largest: dict[str, list[float]] = {"with": [], "without": []}
    for d in WIDTHS:
        q_BTK = torch.randn(GROUPS, QUERIES, d, generator=generator).requires_grad_()
        k_BSK = torch.randn(GROUPS, KEYS, d, generator=generator)
        for name, scale in (("with", scale_of(d)), ("without", 1.0)):
            norm_BT, weight_BT = jacobian(q_BTK, k_BSK, scale)
            norms[name].append(float(norm_BT.median()))
            means[name].append(float(norm_BT.mean()))
            largest[name].append(float(weight_BT.median()))
    shown = WIDTHS.index(128)
    return Measured(
        values={
            "largest / least norm, scaled": max(norms["with"]) / min(norms["with"]),
            "norm, scaled, d = 128": norms["with"][shown],
            "norm, unscaled, d = 16": norms["without"][0],
            "norm, unscaled, d = 128": norms["without"][shown],
            "norm, unscaled, d = 1024": norms["without"][-1],
            "unscaled / scaled at d = 128": norms["without"][shown] / norms["with"][shown],
            "mean norm, unscaled, d = 1024": means["without"][-1],
            "largest weight, unscaled, d = 128": largest["without"][shown],
            "largest weight, scaled, d = 128": largest["with"][shown],
        },
        series={"widths": WIDTHS, "norms": norms, "means": means, "largest": largest},
    )


def jacobian(q_BTK: Tensor, k_BSK: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Of every query, the Frobenius norm of the derivative of its weights by its scores, and its largest weight."""
    trace = one_head(q_BTK, k_BSK, scale=scale)
    squares = torch.zeros(())
    for key in range(KEYS):
        total = trace.pattern_BHTS[..., key].sum()
        (row_BHTS,) = torch.autograd.grad(total, trace.scores_BHTS, retain_graph=True)
        squares = squares + row_BHTS.square().sum(-1)
    return squares.sqrt()[:, 0], trace.pattern_BHTS.detach().amax(-1)[:, 0]


def draw(results: Sequence[Measured]) -> Figure:
    figure, (axes, weights) = figures.panels(2, width=5.6)
    widths = results[0].series["widths"]
    for (name, says), style in zip(
        (("with", "q.k / sqrt(d)"), ("without", "q.k, not divided")), figures.styles(), strict=False
    ):
        figures.curve(axes, widths, [result.series["norms"][name] for result in results], says, style)
        figures.curve(weights, widths, [result.series["largest"][name] for result in results], says, style)
    axes.axhline(1e-3, color=figures.INK, linewidth=1.2, linestyle=(0, (6, 3)), label="mark: below, at d = 1,024")
    for panel in (axes, weights):
        panel.set_xscale("log", base=2)
        panel.set_xlabel("width of a head, d")
        panel.legend()
    axes.set_yscale("log")
    axes.set_ylabel("norm of the softmax's Jacobian (median)")
    axes.legend(loc="lower left")
    weights.set_ylim(0, 1.05)
    weights.set_ylabel("largest weight of a query (median)")
    return figure


CLAIM = Claim(
    says="Without the divisor, scores of wide heads are so far apart that the softmax is nearly one-hot and its "
    "gradient nearly zero. Dividing by sqrt(d) keeps it alive at any width.",
    source=Source(statements=(25,), paper="Vaswani 2017, section 3.2.1"),
    how="2,000 queries, each with 16 keys to choose from (the same for 16 queries), of normal components with variance "
    "1, for d from 16 to 1,024. The derivative of a query's 16 weights by its 16 scores, as the softmax is given them, "
    "is taken through the library's softmax; its Frobenius norm is given as the median over queries. By q.k itself, "
    "before it is divided, the derivative is 1/sqrt(d) of that: at d = 128 0.027, against 0.034 without a divisor, and "
    "at d = 1,024 0.01, against 0.00002. The mean would hide the loss: the few queries with two keys nearly alike keep "
    "a large gradient.",
    marks=(
        Mark(
            of="largest / least norm, scaled",
            high=1.1,
            why="With variance 1 at every width the softmax works alike; medians of 2,000 differ by 1 or 2 %.",
        ),
        Mark(
            of="unscaled / scaled at d = 128",
            high=0.2,
            why="At a usual width the gradient is down to less than a fifth; three seeds gave 0.10 to 0.12 of it.",
        ),
        Mark(of="norm, unscaled, d = 1024", high=1e-3, why="Nearly zero; three seeds gave 0.8e-5 to 2.3e-5."),
        Mark(
            of="norm, scaled, d = 128",
            low=0.1,
            why="It lives: the largest a softmax can have, of two weights of a half each, is 0.5; three seeds gave "
            "0.30.",
        ),
    ),
    measure=measure,
    draw=draw,
    seeds=3,
    cost=Cost(minutes=0.02),
)
