"""Between two keys the answer is a mixture, which a hard lookup can't give."""

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

PAIRS, WIDTH = 1000, 16
STEPS = 41
"""A query goes from the first key to the second in so many."""
SHARPNESS = 2.0


def measure(run: Run) -> Measured:
    generator = torch.Generator().manual_seed(run.seed)
    k_BSK, v_BSK = (torch.randn(PAIRS, 2, WIDTH, generator=generator, dtype=torch.float64) for _ in range(2))
    k_BSK = k_BSK / k_BSK.norm(dim=-1, keepdim=True) * WIDTH**0.5
    way_T = torch.linspace(0, 1, STEPS, dtype=torch.float64)
    q_BTK = k_BSK[:, :1] * (1 - way_T[:, None]) + k_BSK[:, 1:] * way_T[:, None]
    scale = SHARPNESS * scale_of(WIDTH)
    trace = one_head(q_BTK, k_BSK, v_BSK, scale=scale)
    first_BT, answer_BTK = trace.pattern_BHTS[:, 0, :, 0], trace.z_BHTV[:, 0]
    theory_BT = torch.sigmoid((q_BTK * (k_BSK[:, :1] - k_BSK[:, 1:])).sum(-1) * SHARPNESS / WIDTH**0.5)
    along_BT, off_BT = on_segment(answer_BTK, v_BSK)
    hard_BT = trace.scores_BHTS[:, 0].argmax(-1)
    return Measured(
        values={
            "largest difference from the sigmoid": float((first_BT - theory_BT).abs().max()),
            "largest distance from the segment": float(off_BT.max()),
            "largest difference of place and weight": float((1 - along_BT - theory_BT).abs().max()),
            "error of a hard lookup in the middle": float((hard_BT - along_BT).abs()[:, STEPS // 2].mean()),
            "share of answers between": float(((along_BT > 0.01) & (along_BT < 0.99)).double().mean()),
        },
        series={
            "way": way_T.tolist(),
            "soft": along_BT.quantile(torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64), dim=0).tolist(),
            "hard": hard_BT.double().mean(0).round().tolist(),
            "answers": answer_in_plane(),
        },
    )


def on_segment(answer_BTK: Tensor, v_BSK: Tensor) -> tuple[Tensor, Tensor]:
    """How far along the way from the first value to the second an answer lies, as a share, and how far beside it."""
    from_BK, step_BK = v_BSK[:, 0], v_BSK[:, 1] - v_BSK[:, 0]
    moved_BTK = answer_BTK - from_BK[:, None]
    along_BT = (moved_BTK * step_BK[:, None]).sum(-1) / step_BK.square().sum(-1)[:, None]
    off_BT = (moved_BTK - along_BT[..., None] * step_BK[:, None]).norm(dim=-1)
    return along_BT, off_BT


def answer_in_plane() -> dict[str, list[list[float]]]:
    """For the figure: two keys of width 2 at a right angle, two values, and the answers to a query that turns from one
    key to the other.
    """
    angle_T = torch.linspace(0, torch.pi / 2, 13, dtype=torch.float64)
    q_1TK = torch.stack([angle_T.cos(), angle_T.sin()], dim=-1)[None]
    k_1SK = torch.eye(2, dtype=torch.float64)[None]
    v_1SK = torch.tensor([[[0.2, 0.9], [0.9, 0.3]]], dtype=torch.float64)
    trace = one_head(q_1TK, k_1SK, v_1SK, scale=6.0)
    return {"values": v_1SK[0].tolist(), "soft": trace.z_BHTV[0, 0].tolist()}


def draw(results: Sequence[Measured]) -> Figure:
    series = results[0].series
    figure, (axes, plane) = figures.panels(2, width=5.6, height=4.2)
    soft, hard = (style for style, _ in zip(figures.styles(), range(2), strict=False))
    low, median, high = series["soft"]
    axes.plot(series["way"], median, label="soft lookup (median pair)", markevery=4, **soft)
    axes.fill_between(series["way"], low, high, color=soft["color"], alpha=0.15, lw=0, label="four fifths of all pairs")
    axes.step(series["way"], series["hard"], where="mid", label="hard lookup", **{**hard, "marker": ""})
    figures.mark(axes, 0.5, "half of each")
    axes.set_xlabel("query: from the first key (0) to the second (1)")
    axes.set_ylabel("answer: from the first value (0) to the second (1)")
    axes.legend(loc="upper left")
    answers, values = (list(zip(*series["answers"][name], strict=True)) for name in ("soft", "values"))
    plane.plot(*values, color=figures.INK, linewidth=1, linestyle=(0, (6, 3)))
    plane.plot(*answers, label="soft lookup, 13 queries", **{**soft, "linestyle": ""})
    plane.plot(
        *values, label="the two values: all that a hard lookup gives", **{**hard, "linestyle": "", "markersize": 9}
    )
    plane.set_xlim(0, 1.1)
    plane.set_ylim(0, 1.1)
    plane.set_xlabel("value, first dimension")
    plane.set_ylabel("value, second dimension")
    plane.legend(loc="lower left")
    return figure


CLAIM = Claim(
    says="To a query between two keys the answer is a genuine mixture of their values, which a hard lookup can't give.",
    source=Source(statements=(14,), paper="Bahdanau 2014, section 3.1 (soft alignment); Graves 2014, section 3.1"),
    how="1,000 pairs of random keys of width 16 and equal length, each key with a random value, in float64; the query "
    "goes from the one key to the other in 41 places, through the library's attention, at twice its usual scale. The "
    "weight of the first key must be sigmoid(q.(k1 - k2) x scale), and the answer lie on the segment between the two "
    "values, at that place. A hard lookup is the value of the key with the higher score.",
    marks=(
        Mark(of="largest difference from the sigmoid", high=1e-12, why="A softmax of two scores is a sigmoid."),
        Mark(of="largest distance from the segment", high=1e-12, why="Weights sum to one, so nothing lies beside it."),
        Mark(of="largest difference of place and weight", high=1e-12, why="The weight is the place on the segment."),
        Mark(
            of="share of answers between",
            low=0.5,
            why="Most answers are no longer one value alone (more than a hundredth of the other is in them).",
        ),
        Mark(
            of="error of a hard lookup in the middle",
            low=0.5 - 1e-9,
            high=0.5 + 1e-9,
            unit="of the segment",
            why="Half-way, keys of equal length score alike, so the mixture has half of each; a hard lookup, which "
            "gives one value or the other, is half of the way off whichever it gives.",
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.01),
)
