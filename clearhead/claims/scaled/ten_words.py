"""Ten words with vectors set by hand: half of what "it" reads is the cat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.one_head import one_head, scale_of
from clearhead.ops.masks import Causal

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

SENTENCE = ("The", "cat", "sat", "on", "the", "mat", "because", "it", "was", "tired")
DIMENSIONS = ("noun", "animate", "action", "object")

ASKS_FOR_A_NOUN = (3.0, 0.0, 0.0, 0.0)
ASKS_FOR_AN_ACTION = (0.0, 0.0, 2.0, 0.0)
ASKS_WHO = (2.0, 1.0, 0.0, 0.0)
QUERIES = (
    ASKS_FOR_A_NOUN,  # an article, for the thing it stands before
    ASKS_FOR_AN_ACTION,  # a noun, for what is done
    ASKS_WHO,  # a verb, for who does it: a noun, and better an animate one
    (1.0, 0.0, 0.0, 2.0),  # a preposition, for an object
    ASKS_FOR_A_NOUN,
    ASKS_FOR_AN_ACTION,
    ASKS_FOR_AN_ACTION,  # a conjunction, for the actions it joins
    (1.0, 2.0, 0.0, 0.0),  # this pronoun stands for an animate noun
    ASKS_WHO,
    (0.0, 2.0, 0.0, 0.0),  # an adjective of feeling, for somebody who feels
)
"""What each word looks for, along the four dimensions."""
KEYS = (
    (0.0, 0.0, 0.0, 0.0),
    (1.0, 2.0, 0.0, 0.0),
    (0.0, 0.0, 2.0, 0.0),
    (0.0, 0.0, 0.0, 0.0),
    (0.0, 0.0, 0.0, 0.0),
    (1.0, 0.0, 0.0, 2.0),
    (0.0, 0.0, 0.0, 0.0),
    (0.5, 0.0, 0.0, 0.0),  # a pronoun is half a noun
    (0.0, 0.0, 1.0, 0.0),
    (0.0, 1.0, 0.0, 0.0),
)
"""What each word offers to be found by."""
VALUES = (
    (0.0, 0.0, 0.0, 0.0),
    (1.0, 1.0, 0.0, 0.0),
    (0.0, 0.0, 1.0, 0.0),
    (0.0, 0.0, 0.0, 0.0),
    (0.0, 0.0, 0.0, 0.0),
    (1.0, 0.0, 0.0, 1.0),
    (0.0, 0.0, 0.0, 0.0),
    (1.0, 0.0, 0.0, 0.0),
    (0.0, 0.0, 0.5, 0.0),
    (0.0, 0.5, 0.0, 0.0),
)
"""What each word is, and gives to those who read it."""
CAT, IT, ANIMATE = SENTENCE.index("cat"), SENTENCE.index("it"), DIMENSIONS.index("animate")


def measure(run: Run) -> Measured:
    scaled = one_head(*vectors(), scale=scale_of(len(DIMENSIONS)))
    unscaled = one_head(*vectors(), scale=1.0)
    causal = one_head(*vectors(), scale=scale_of(len(DIMENSIONS)), mask=Causal())
    weights_TS, sharp_TS, causal_TS = (trace.pattern_BHTS[0, 0] for trace in (scaled, unscaled, causal))
    rises_T = sharp_TS.amax(-1) - weights_TS.amax(-1)
    before, after = VALUES[IT][ANIMATE], float(scaled.z_BHTV[0, 0, IT, ANIMATE])
    return Measured(
        values={
            "weight of cat for it": float(weights_TS[IT, CAT]),
            "next largest weight for it": float(weights_TS[IT].topk(2).values[1]),
            "lead of cat, causal": lead(causal_TS),
            "lead of cat": lead(weights_TS),
            "weight of cat for it, causal": float(causal_TS[IT, CAT]),
            "rows peakier without the divisor": int((rises_T > 0).sum()),
            "least rise of a largest weight": float(rises_T.min()),
            "animate part of it, before": before,
            "animate part of it, after": after,
            "animate part of it, gained": after - before,
            "divisor": 1 / scale_of(len(DIMENSIONS)),
        },
        series={
            "weights": weights_TS.tolist(),
            "largest": {"scaled": weights_TS.amax(-1).tolist(), "unscaled": sharp_TS.amax(-1).tolist()},
            "after": scaled.z_BHTV[0, 0, IT].tolist(),
        },
    )


def vectors() -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, each (1, 10, 4)."""
    q_1TK, k_1SK, v_1SK = (torch.tensor(rows, dtype=torch.float64)[None] for rows in (QUERIES, KEYS, VALUES))
    return q_1TK, k_1SK, v_1SK


def lead(weights_TS: Tensor) -> float:
    """By how much "it" gives more to "cat" than to any other word."""
    row_S = weights_TS[IT].clone()
    cat = float(row_S[CAT])
    row_S[CAT] = 0
    return cat - float(row_S.max())


def draw(results: Sequence[Measured]) -> Figure:
    series = results[0].series
    figure, (pattern, rows, gained) = figures.panels(3, width=5.2, height=4.4)
    figures.heat(pattern, series["weights"], row_names=SENTENCE, column_names=SENTENCE)
    pattern.tick_params(axis="x", rotation=45)
    pattern.set_xlabel("word that is read")
    pattern.set_ylabel("word that reads")
    pattern.set_title("Weights: each row sums to one")
    for (name, style), says in zip(
        zip(("scaled", "unscaled"), figures.styles(), strict=False), ("divided by 2", "not divided"), strict=True
    ):
        rows.plot(range(len(SENTENCE)), series["largest"][name], label=says, **{**style, "linestyle": ""})
    rows.set_xticks(range(len(SENTENCE)), SENTENCE, rotation=45)
    rows.set_ylim(0, 1)
    rows.set_xlabel("word that reads")
    rows.set_ylabel("largest weight of its row")
    rows.set_title("Every row is peakier undivided")
    rows.legend(loc="upper left")
    n = range(len(DIMENSIONS))
    gained.bar([i - 0.2 for i in n], VALUES[IT], width=0.36, color=figures.COLOURS[1], hatch="//", label="before")
    gained.bar([i + 0.2 for i in n], series["after"], width=0.36, color=figures.COLOURS[0], label="after")
    figures.mark(gained, VALUES[IT][ANIMATE] + 0.3, "mark: animate rises by 0.3")
    gained.set_xticks(n, DIMENSIONS)
    gained.set_xlabel("dimension")
    gained.set_ylabel('part of "it"')
    gained.set_title('What "it" is, before and after')
    gained.legend()
    gained.grid(visible=False, axis="x")
    return figure


CLAIM = Claim(
    says='In "The cat sat on the mat because it was tired", with vectors set by hand along four named dimensions '
    '(noun, animate, action, object), about half of what "it" reads comes from "cat", and the cat\'s being animate '
    'then is in what "it" became.',
    source=Source(statements=(22, 20, 26), paper="Vaswani 2017, section 3.2.1, equation 1"),
    how="Each of the ten words has a query (what it looks for), a key (what it can be found by) and a value (what it "
    "is), of d = 4 numbers that mean something. The library's attention reads them in float64, with the divisor that a "
    "head of width 4 has (2), once where each word sees all and once where it sees itself and those before it only; "
    'and once without the divisor. The animate part of "it" is that of its own value before, and that of what it reads '
    "after. The vectors are chosen so that the cat stands out: what is tested is that the library's four steps make of "
    "them what is promised.",
    marks=(
        Mark(
            of="weight of cat for it",
            low=0.45,
            high=0.55,
            why="About half. The vectors make it 0.511; without the divisor it is 0.89.",
        ),
        Mark(of="lead of cat", low=0.1, why='"cat" gets most, and clearly: the next word gets a tenth.'),
        Mark(
            of="lead of cat, causal",
            low=0.1,
            why='"it" sees eight of the ten words then; the cat is among them, so the answer stays the same.',
        ),
        Mark(
            of="rows peakier without the divisor",
            low=10,
            high=10,
            why="A larger factor on the scores raises the largest weight of every row that is not even: all ten.",
        ),
        Mark(
            of="animate part of it, gained",
            low=0.3,
            why="Half of the cat's 1 is 0.5; 0.3 is well above what even weights would give (0.15).",
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.01),
)
