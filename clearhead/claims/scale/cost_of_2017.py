"""What the Transformer of 2017 cost to train, by the hour and by the count, beside its rivals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.config import TransformerConfig
from clearhead.costs import counts
from clearhead.costs.source import read_config
from clearhead.training.config import ScheduleConfig
from clearhead.training.schedule import factor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GPUS, SUSTAINED = 8, 9.5e12
"""P100s, and the operations a second in float32 that the paper takes each to sustain."""
HOURS = {"base": 12.0, "big": 3.5 * 24}
STEPS = {"base": 100_000, "big": 300_000}
SENTENCES, LENGTH = 1000, 25
"""A batch: 25,000 tokens of source and as many of target."""
WARMUP = 4000
ENGLISH_GERMAN = {"GNMT + RL": (24.6, 2.3e19), "ConvS2S": (25.16, 9.6e18), "MoE": (26.03, 2.0e19)}
ENSEMBLES = {"GNMT + RL, ensemble": (26.30, 1.8e20), "ConvS2S, ensemble": (26.36, 7.7e19)}
"""BLEU from English to German, and FLOPs of training."""
ENGLISH_FRENCH = {"GNMT + RL": 1.4e20, "ConvS2S": 1.5e20, "MoE": 1.2e20}
BLEU = {"base": 27.3, "big": 28.4}
BESIDE = {"ConvS2S": ((-8, -3), "right"), "GNMT + RL, ensemble": ((0, -16), "center")}
"""Where a name would cover another, or the mark."""


def measure(run: Run) -> Measured:
    by_hour = flops_by_hours()
    values: dict[str, float] = {}
    for size, flops in by_hour.items():
        config = read_config(f"transformer-2017-{size}").config
        assert isinstance(config, TransformerConfig)
        told = counts(config)
        step = told.flops(SENTENCES, LENGTH, training=True, source=LENGTH).needed
        peak, off = schedule(config.d_model)
        values |= {
            f"FLOPs of {size}, by hours": flops,
            f"FLOPs of {size}, counted": step * STEPS[size],
            f"counted over by hours, {size}": step * STEPS[size] / flops,
            f"parameters of {size}": told.parameters.trained,
            f"highest learning rate, {size}": peak,
            f"schedule off the paper's, {size}": off,
        }
    cheapest = min(flops for _, flops in ENGLISH_GERMAN.values())
    return Measured(
        values={
            **values,
            "base over its cheapest rival": by_hour["base"] / cheapest,
            "base over its dearest rival": by_hour["base"] / max(flops for _, flops in ENGLISH_GERMAN.values()),
            "big over its cheapest rival, English to French": by_hour["big"] / min(ENGLISH_FRENCH.values()),
        },
        series={"ours": {size: [BLEU[size], flops] for size, flops in by_hour.items()}},
    )


def flops_by_hours() -> dict[str, float]:
    """Of each size: hours, times what all GPUs sustain."""
    return {size: hours * 3600 * GPUS * SUSTAINED for size, hours in HOURS.items()}


def schedule(d_model: int) -> tuple[float, float]:
    """The highest rate of the paper's formula (equation 3), and how far the library's schedule is from it, relative."""
    steps = range(1, 3 * WARMUP)
    rates = [d_model**-0.5 * min(step**-0.5, step * WARMUP**-1.5) for step in steps]
    peak, config = max(rates), ScheduleConfig(kind="inverse_sqrt", warmup=WARMUP)
    ours = [peak * factor(config, step - 1, len(steps)) for step in steps]
    return peak, max(abs(a / b - 1) for a, b in zip(ours, rates, strict=True))


def draw(results: Sequence[Measured]) -> Figure:
    figure, (axes,) = figures.panels(1, width=7.4)
    ours = results[0].series["ours"]
    groups = (
        ("the Transformer, by hours of GPUs", {f"Transformer, {size}": point for size, point in ours.items()}),
        ("rivals, single models (recalled)", ENGLISH_GERMAN),
        ("rivals, ensembles (recalled)", ENSEMBLES),
    )
    for (says, points), plain in zip(groups, figures.styles(), strict=False):
        style = {**plain, "linestyle": "none", "markersize": 8}
        axes.plot([p[1] for p in points.values()], [p[0] for p in points.values()], label=says, **style)
        for name, (bleu, flops) in points.items():
            move, side = BESIDE.get(name, ((0, 7), "center"))
            axes.annotate(name, (flops, bleu), xytext=move, textcoords="offset points", ha=side, fontsize=9)
    cheapest = min(flops for _, flops in ENGLISH_GERMAN.values())
    figures.mark(axes, cheapest, "mark: the cheapest rival", across=False)
    axes.set_xscale("log")
    axes.set_xlim(2e18, 4e20)
    axes.set_ylim(24.2, 29.2)
    axes.set_xlabel("FLOPs of training")
    axes.set_ylabel("BLEU, English to German, newstest2014")
    axes.legend(loc="lower right")
    return figure


def about(of: str, number: float, share: float, why: str, unit: str = "") -> Mark:
    return Mark(of=of, low=number * (1 - share), high=number * (1 + share), why=why, unit=unit)


UTILISED = (
    "what was counted is what the GPUs had to do, and the hours what they could have done: more is impossible, and "
    "less than a fifth would say that the steps or the batch are not the paper's"
)

CLAIM = Claim(
    says="The base model of 2017 was the best from English to German after 12 hours on 8 GPUs, at a fraction of the "
    "cost of its rivals.",
    source=Source(statements=(56,), paper="Vaswani 2017, table 2 and sections 5.1, 5.2, 5.3 and 6.1"),
    how="The cost is worked out as in the paper, as hours x 8 GPUs x 9.5e12 operations a second: 12 hours for the base "
    "model, 3.5 days for the big one. Beside it stands what the library counts for their configs: 100,000 and 300,000 "
    "steps of 1,000 sentences of 25 tokens in each language, forward and backward. No model is trained here: the "
    "scores (BLEU 27.3 and 28.4) and the costs and scores of the rivals, from table 2, and the 9.5e12 are recalled "
    "from memory and not checked, and that the scores were the best is shown and not judged. The highest learning "
    "rates are worked out here from equation 3 alone; the library's schedule, given that peak, is compared with the "
    "equation at every step.",
    marks=(
        about("FLOPs of base, by hours", 3.3e18, 0.02, "the paper says 3.3e18, in two digits"),
        about("FLOPs of big, by hours", 2.3e19, 0.02, "the paper says 2.3e19, in two digits"),
        Mark(of="counted over by hours, base", low=0.2, high=1, why=UTILISED),
        Mark(of="counted over by hours, big", low=0.2, high=1, why=UTILISED),
        Mark(of="base over its cheapest rival", high=1, why="a fraction is less than one"),
        about("highest learning rate, base", 6.99e-4, 0.001, "(512 x 4000)^-0.5, as reported"),
        about("highest learning rate, big", 4.94e-4, 0.001, "(1024 x 4000)^-0.5, as reported"),
        Mark(of="schedule off the paper's, base", high=1e-12, why="both are one formula, in float64"),
        Mark(of="schedule off the paper's, big", high=1e-12, why="both are one formula, in float64"),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.1),
)
