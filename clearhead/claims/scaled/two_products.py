"""Attention for all tokens at once is two matrix products and a softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.one_head import one_head, scale_of
from clearhead.claims.ingredients.small_models import attention, decoder, new_model
from clearhead.config import BlockConfig, SublayerConfig
from clearhead.costs.counter import count_flops
from clearhead.costs.flops import Run as Pass
from clearhead.costs.flops import work
from clearhead.lens import look
from clearhead.ops.attention import traced
from clearhead.ops.masks import Causal, Everything, bind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADS, WIDTH = 4, 16
LENGTHS = (8, 16, 32, 64, 128, 256, 512)
LOOPED = 64
"""Up to this length a loop in plain numbers is quick enough."""


def measure(run: Run) -> Measured:
    generator = torch.Generator().manual_seed(run.seed)
    counted, formula, priced, errors = [], [], [], []
    for n in LENGTHS:
        shape = (1, HEADS, n, WIDTH)
        q_BHTK, k_BHSK, v_BHSK = (torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3))
        counted.append(flops(q_BHTK, k_BHSK, v_BHSK))
        formula.append(2 * 2 * HEADS * n * n * WIDTH)
        parts = work(attention(HEADS, WIDTH), HEADS * WIDTH, Pass(batch=1, tokens=n))
        priced.append(sum(part.quadratic for _, part in parts))
        if n <= LOOPED:
            errors.append(loop_error(q_BHTK[0, 0], k_BHSK[0, 0], v_BHSK[0, 0]))
    projections = projection_errors(run.seed)
    ratios = [count / expected for count, expected in zip(counted, formula, strict=True)]
    return Measured(
        values={
            "least counted / formula": min(ratios),
            "largest counted / formula": max(ratios),
            "priced from the config / counted": sum(priced) / sum(counted),
            "error of the loop": max(errors),
            "error of q, k, v": max(projections.values()),
        },
        series={
            "lengths": LENGTHS,
            "counted": counted,
            "formula": formula,
            "errors": {"loop": max(errors), **{f"{name} = x W": error for name, error in projections.items()}},
        },
    )


def flops(q_BHTK: Tensor, k_BHSK: Tensor, v_BHSK: Tensor) -> int:
    """What torch counts in the library's attention."""
    n = q_BHTK.shape[2]
    mask = bind(Causal(), n, n)
    return count_flops(lambda: traced(q_BHTK, k_BHSK, v_BHSK, mask, scale=scale_of(WIDTH)))


def loop_error(q_TK: Tensor, k_SK: Tensor, v_SK: Tensor) -> float:
    """How far two products are from the four steps taken a token at a time, where each sees all and where each sees
    what came before it.
    """
    n, worst = len(q_TK), 0.0
    for mask in (Everything(), Causal()):
        z_TK = one_head(q_TK[None], k_SK[None], v_SK[None], scale=scale_of(WIDTH), mask=mask).z_BHTV[0, 0]
        for t in range(n):
            n_seen = t + 1 if mask == Causal() else n
            by_hand = a_token(q_TK[t].tolist(), k_SK[:n_seen].tolist(), v_SK[:n_seen].tolist())
            worst = max(worst, *(abs(a - b) for a, b in zip(by_hand, z_TK[t].tolist(), strict=True)))
    return worst


def a_token(query: list[float], keys: list[list[float]], values: list[list[float]]) -> list[float]:
    """Score, scale, normalise, mix, in plain numbers: one key after another."""
    scores = [sum(a * b for a, b in zip(query, key, strict=True)) / math.sqrt(len(query)) for key in keys]
    shares = [math.exp(score - max(scores)) for score in scores]
    weights = [share / sum(shares) for share in shares]
    columns = zip(*values, strict=True)
    return [sum(weight * value for weight, value in zip(weights, column, strict=True)) for column in columns]


def projection_errors(seed: int) -> dict[str, float]:
    """How far a layer's q, k and v are from its input times its matrices, in a model without rotation and norms."""
    mixer = SublayerConfig(op=replace(attention(HEADS, WIDTH), positions=None))
    config = decoder((BlockConfig(mixer=mixer, ffn=None),), d_model=HEADS * WIDTH, vocab_size=50, norm=None)
    model = new_model(config, seed).double()
    tokens_BT = torch.randint(50, (1, 10), generator=torch.Generator().manual_seed(seed))
    seen = look(model, tokens_BT, "embed", *(f"layers.0.mixer.{name}" for name in "qkv"))
    errors = {}
    for name in "qkv":
        by_hand_BTE = seen["embed"] @ model.get_parameter(f"layers.0.mixer.{name}_proj.weight").detach().T
        by_hand_BHTK = by_hand_BTE.unflatten(-1, (HEADS, WIDTH)).transpose(1, 2)
        errors[name] = float((by_hand_BHTK - seen[f"layers.0.mixer.{name}"]).abs().max())
    return errors


def draw(results: Sequence[Measured]) -> Figure:
    series = results[0].series
    figure, (axes, errors) = figures.panels(2, width=5.6)
    lengths = series["lengths"]
    first, second = (style for style, _ in zip(figures.styles(), range(2), strict=False))
    axes.plot(lengths, series["formula"], label="mark: two products, 2 x 2 T S H K", **{**second, "marker": ""})
    axes.plot(lengths, series["counted"], label="counted in the library", **{**first, "linestyle": ""})
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlabel("tokens, T = S")
    axes.set_ylabel("floating-point operations")
    axes.set_title(f"{HEADS} heads of {WIDTH}, all tokens at once")
    axes.legend()
    names = list(series["errors"])
    for i, name in enumerate(names):
        error = max(*(result.series["errors"][name] for result in results), 1e-18)
        errors.vlines(i, 1e-18, error, color=figures.COLOURS[0], linewidth=2)
        errors.plot(i, error, "o", color=figures.COLOURS[0])
        says = f"{error:.0e}" if error > 1e-18 else "none"
        errors.annotate(says, (i, error), ha="center", va="bottom", xytext=(0, 6), textcoords="offset points")
    figures.mark(errors, 1e-12, "mark: rounding in float64")
    errors.set_yscale("log")
    errors.set_ylim(1e-18, 1e-10)
    errors.set_xticks(range(len(names)), names)
    errors.set_xlabel("what is done by hand")
    errors.set_ylabel("largest difference from the library")
    errors.set_title("A token at a time, and x times its matrices")
    errors.grid(visible=False, axis="x")
    return figure


CLAIM = Claim(
    says="Attention is four steps: score, scale, normalise, mix. For all tokens at once they are two matrix products "
    "with a softmax between, softmax(Q K^T / sqrt(d)) V, where q, k and v are the embedding times learned matrices.",
    source=Source(statements=(20, 21, 27), paper="Vaswani 2017, section 3.2.1, equation 1"),
    how="Torch's counter of operations runs over the library's attention for 8 to 512 tokens; two products of matrices "
    "take 2 x 2 T S H K, and no other product may be there. The counter sees products of matrices alone, and gives a "
    "softmax none. The result is held against the four steps taken in plain numbers, one token and one key after "
    "another (up to 64 tokens; each seeing all, and each seeing itself and what came before). In a layer of a random "
    "model, without rotary positions and norms, q, k and v are held against its input times its three matrices. All is "
    "in float64.",
    marks=(
        *(
            Mark(of=f"{which} counted / formula", low=1.0, high=1.0, why="A count is exact, at every length.")
            for which in ("least", "largest")
        ),
        Mark(
            of="priced from the config / counted",
            low=1.0,
            high=1.0,
            why="What the library says that the scores and the mix of a layer cost is what it computes.",
        ),
        Mark(of="error of the loop", high=1e-12, why="Only the rounding of sums of up to 64 numbers of order one."),
        Mark(of="error of q, k, v", high=1e-12, why="Only the rounding of sums of 64 numbers."),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.02),
)
