"""RoPE: a score depends on how far apart two tokens stand, and on nothing else of where they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.small_models import attention, block, decoder, new_model
from clearhead.config import RotaryConfig
from clearhead.lens import look
from clearhead.ops import positions

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, BASE = 64, 10_000.0
LAYOUTS = {
    "half-split": RotaryConfig(),
    "interleaved": RotaryConfig(interleaved=True),
    "partial": RotaryConfig(fraction=0.5),
}
OFFSETS, STARTS = tuple(range(101)), (0, 1, 7, 100, 1_000, 5_000)
"""How far apart the two stand, and where the first of them does."""


def turned(x_K: Tensor, place: Tensor, rotary: RotaryConfig) -> Tensor:
    """(places, K): a vector as it is at each place, in float64."""
    frequency = positions.frequencies(int(WIDTH * rotary.fraction), BASE).double()
    cos, sin = positions.rotary_tables(place, frequency, rotary.interleaved)
    x_11PK = x_K.expand(1, 1, len(place), -1)
    return positions.rotate(x_11PK, cos[None, None], sin[None, None], rotary.interleaved)[0, 0]


def scores_of(rotary: RotaryConfig, generator: torch.Generator) -> tuple[dict[str, float], list[list[float]]]:
    """How far scores of one offset differ, and how far those of all offsets do, by the lengths of query and key; how
    far rotation changes a length; and the scores, a row a start.
    """
    q_K, k_K = (torch.randn(WIDTH, generator=generator, dtype=torch.float64) for _ in range(2))
    size = q_K.norm() * k_K.norm()
    offset = torch.tensor(OFFSETS)
    rows = [
        (turned(q_K, start + offset, rotary) * turned(k_K, torch.tensor([start]), rotary)).sum(-1) / size
        for start in STARTS
    ]
    scores_SO = torch.stack(rows)
    norms = turned(q_K, torch.arange(0, 6_000, 50), rotary).norm(dim=-1) / q_K.norm()
    found = {
        "spread of one offset": (scores_SO - scores_SO.mean(0)).abs().max(),
        "spread over all offsets": scores_SO.mean(0).max() - scores_SO.mean(0).min(),
        "change of a vector's length": (norms - 1).abs().max(),
    }
    return {name: float(value) for name, value in found.items()}, scores_SO.tolist()


def in_model(rotary: RotaryConfig, seed: int, length: int) -> float:
    """How much a model's scores differ along a diagonal where all tokens are the same, by the largest of them."""
    layer = block(replace(attention(2, WIDTH), positions=rotary), None)
    model = new_model(decoder((layer,), d_model=WIDTH, vocab_size=4), seed)
    scores = look(model, torch.ones(1, length, dtype=torch.long), "layers.0.mixer.scores")["layers.0.mixer.scores"]
    differences = [
        (diagonal - diagonal[..., :1]).abs().max()
        for offset in range(length - 1)
        for diagonal in (scores.diagonal(-offset, -2, -1),)
    ]
    return float(torch.stack(differences).max() / scores[scores.isfinite()].abs().max())


def upper_bound(d: int, offset: Sequence[int]) -> Tensor:
    """RoFormer's bound on how large a score can be (section 3.4.3, equation 37): the mean length of the partial sums of
    all pairs' turns, by what it is where nothing is turned.
    """
    cos, sin = positions.rotary_tables(torch.tensor(offset), positions.frequencies(d, BASE).double(), False)
    turns_NK = torch.complex(cos[:, : d // 2], sin[:, d // 2 :])
    means_N = turns_NK.cumsum(-1).abs().mean(-1)
    return means_N / ((d // 2 + 1) / 2)


def measure(run: Run) -> Measured:
    generator = torch.Generator().manual_seed(run.seed)
    values: dict[str, float] = {}
    rows = {}
    for name, rotary in LAYOUTS.items():
        found, rows[name] = scores_of(rotary, generator)
        values |= {f"{of}, {name}": value for of, value in found.items()}
        values[f"spread in a model, float32, {name}"] = in_model(rotary, run.seed, 64 if run.quick else 256)
    far = range(201)
    bound_N = upper_bound(WIDTH, far)
    later = {f"upper bound at {n}": float(bound_N[n]) for n in (10, 50, 100)}
    falls = {"upper bound from 20 on, at most": float(bound_N[20:].max())}
    return Measured(values=values | later | falls, series={"scores": rows, "bound": bound_N.tolist()})


def draw(results: Sequence[Measured]) -> Figure:
    series = results[0].series
    figure, (scores, bound) = figures.panels(2, width=5.6)
    looks = figures.styles()
    for row, start, style in zip(series["scores"]["half-split"], STARTS, looks, strict=False):
        few = {key: value for key, value in style.items() if key != "linestyle"} | {"linestyle": "", "markersize": 9}
        step = STARTS.index(start)
        scores.plot(OFFSETS[step :: len(STARTS)], row[step :: len(STARTS)], label=f"key at {start:,}", **few)
    scores.plot(OFFSETS, series["scores"]["half-split"][0], color=figures.FAINT, linewidth=1)
    scores.set_xlabel("offset: places from key to query")
    scores.set_ylabel("score, by the lengths of both")
    scores.set_title("one query and one key, wherever they stand", fontsize=10)
    scores.legend(ncols=2, fontsize=8)
    bound.plot(series["bound"], color=figures.COLOURS[0], linewidth=1.8)
    figures.mark(bound, 0.7, "mark: at most, from 20 on")
    bound.set_ylim(0, 1.05)
    bound.set_xlabel("offset")
    bound.set_ylabel("upper bound of the score, 1 at offset 0")
    bound.set_title("it falls with distance, and not at every step", fontsize=10)
    return figure


CLAIM = Claim(
    says="RoPE turns pairs of numbers in queries and keys by an angle that grows with the place; the score of two "
    "tokens then depends on how far apart they stand and on nothing else of where they are.",
    source=Source(statements=(38,), paper="Su 2021, RoFormer, section 3.2.2, equations 14-16; section 3.4.3"),
    how="A random query and a random key are turned by the library's functions, in float64, to every offset from 0 to "
    "100 with the key at places from 0 to 5,000: pairs taken from both halves, pairs of neighbours, and half of the "
    "head left unturned. The spread of one offset's scores is by the lengths of query and key. A model in float32 "
    "reads equal tokens, and its scores along each diagonal are compared. That scores do differ from offset to "
    "offset is judged too. RoFormer's upper bound on the score, worked out from the library's angles for 64 "
    "dimensions, falls with distance and not at every step; judged is the highest that it is from 20 to 200.",
    marks=(
        *(
            mark
            for name in LAYOUTS
            for mark in (
                Mark(
                    of=f"spread of one offset, {name}",
                    high=1e-11,
                    why="Float64's rounding of an angle of 5,000 is 1e-12; the paper's equation has no other error.",
                ),
                Mark(
                    of=f"spread over all offsets, {name}",
                    low=0.05,
                    why="A score does depend on the offset: without rotation this is 0.",
                ),
                Mark(
                    of=f"change of a vector's length, {name}",
                    high=1e-12,
                    why="A rotation keeps lengths.",
                ),
                Mark(
                    of=f"spread in a model, float32, {name}",
                    high=1e-4,
                    why="Float32's rounding of an angle of 256 is 1.5e-5, and a few such add up.",
                ),
            )
        ),
        Mark(
            of="upper bound from 20 on, at most",
            high=0.7,
            why="The bound on the scores of far tokens is lower than that on near ones, by more than a quarter, at "
            "every distance from 20 to 200.",
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.02),
)
