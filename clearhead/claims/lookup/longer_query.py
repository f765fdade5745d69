"""A longer query, or a higher sharpness, makes the softmax more decisive."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.checkpoints.load import load
from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.one_head import entropy, longer, one_head, pattern, scale_of
from clearhead.claims.ingredients.sentences import SENTENCES
from clearhead.lens import look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUERIES, KEYS, WIDTH = 2000, 16, 32
LENGTHS = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
ENDLESS = 1e6
"""So much longer a query is the limit."""


def measure(run: Run) -> Measured:
    generator = torch.Generator().manual_seed(run.seed)
    q_BTK, k_BSK = (torch.randn(QUERIES, n, WIDTH, generator=generator, dtype=torch.float64) for n in (1, KEYS))
    scale = scale_of(WIDTH)
    by_length = torch.stack([pattern(length * q_BTK, k_BSK, scale=scale)[:, 0] for length in LENGTHS])
    by_sharpness = torch.stack([pattern(q_BTK, k_BSK, scale=length * scale)[:, 0] for length in LENGTHS])
    largest, spread = by_length.amax(-1), entropy(by_length)
    trace = one_head(ENDLESS * q_BTK, k_BSK, scale=scale)
    limit_BS, best_B = trace.pattern_BHTS[:, 0, 0], trace.scores_BHTS[:, 0, 0].argmax(-1)
    in_model = of_model(SENTENCES[0])
    return Measured(
        values={
            "share of steps in which the largest weight rises": rising(largest),
            "share of steps in which the entropy falls": rising(-spread),
            "difference of length and sharpness": float((by_length - by_sharpness).abs().max()),
            "largest weight at length 0": float(largest[0].max()),
            "weight of the best key in the limit": float(limit_BS.gather(1, best_B[:, None]).mean()),
            "share of a model's steps in which the largest weight rises": rising(in_model),
        },
        series={
            "largest": largest.quantile(torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64), dim=1).tolist(),
            "entropy": spread.quantile(torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64), dim=1).tolist(),
        },
    )


def rising(by_length_LN: Tensor) -> float:
    """The share of steps to a greater length in which a number does not fall, but for rounding; of those rows in which
    it is not the same at all lengths, as where a query may see one key alone.
    """
    moved = by_length_LN.amax(0) > by_length_LN.amin(0)
    if not moved.any():
        return 0.0
    return float((by_length_LN[:, moved].diff(dim=0) > -1e-12).double().mean())


def of_model(text: str) -> Tensor:
    """The largest weight of every row of clear-gpt's first layer, by how much longer its queries are made."""
    model = load("clear-gpt", dtype=torch.float64)
    where = "layers.0.mixer"
    rows = []
    for length in LENGTHS:
        seen = look(model, text, f"{where}.pattern", edits={f"{where}.q": longer(length)})
        rows.append(seen[f"{where}.pattern"].amax(-1).flatten())
    return torch.stack(rows)


def draw(results: Sequence[Measured]) -> Figure:
    figure, (weights, spreads) = figures.panels(2, width=5.6)
    for axes, name, end, says in (
        (weights, "largest", 1 / KEYS, f"even: 1/{KEYS}"),
        (spreads, "entropy", math.log(KEYS), f"even: ln {KEYS}"),
    ):
        low, median, high = results[0].series[name]
        style = next(figures.styles())
        axes.plot(LENGTHS, median, label="median query", **style)
        axes.fill_between(LENGTHS, low, high, color=style["color"], alpha=0.15, lw=0, label="four fifths of all")
        figures.mark(axes, end, says)
        axes.set_xscale("symlog", base=2, linthresh=0.25)
        axes.set_xticks(LENGTHS, [f"{length:g}" for length in LENGTHS])
        axes.set_xlim(-0.05, 40)
        axes.set_xlabel("length of the query (or sharpness), times")
    weights.set_ylabel(f"largest weight, of {KEYS} keys")
    weights.set_ylim(0, 1.05)
    weights.legend(loc="upper left")
    spreads.set_ylabel("entropy of the weights (nats)")
    spreads.set_ylim(-0.1, 3.1)
    spreads.legend(loc="lower left")
    return figure


CLAIM = Claim(
    says="A longer query, or a higher sharpness, makes the softmax more decisive: from an even spread at length 0 to "
    "the best key alone in the limit.",
    source=Source(statements=(13,), paper="Vaswani 2017, section 3.2.1; Hinton 2015, section 2 (temperature)"),
    how="2,000 random queries, each with 16 random keys of width 32, go through the library's attention in float64 "
    "with the query made 0 to 32 times as long, and with the scale made so in its place. At each step the largest "
    "weight must not fall and the entropy not rise, by more than rounding, for every query; one that stays as it is "
    "counts as rising. The limit is a query a million times as long. The same is done to the queries of clear-gpt's "
    "first layer on one sentence, in float64.",
    marks=(
        *(
            Mark(
                of=name,
                low=1.0,
                why="The derivative of the largest weight by the sharpness is never negative, and that of the entropy "
                "never positive, so there is no exception.",
            )
            for name in (
                "share of steps in which the largest weight rises",
                "share of steps in which the entropy falls",
                "share of a model's steps in which the largest weight rises",
            )
        ),
        Mark(of="difference of length and sharpness", high=1e-12, why="They are the same factor on every score."),
        Mark(
            of="largest weight at length 0", low=1 / KEYS - 1e-12, high=1 / KEYS + 1e-12, why="All scores are 0 then."
        ),
        Mark(
            of="weight of the best key in the limit",
            low=0.999,
            why="All but the few queries whose two best keys score alike to a millionth.",
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.02),
)
