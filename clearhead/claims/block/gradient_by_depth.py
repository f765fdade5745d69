"""At the start, the last layer's gradient is the same at any depth with Post-LN, and falls as 1/sqrt(L) with Pre-LN."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.fitting import next_token_loss
from clearhead.claims.ingredients.norm_placement import Placement, decoder_with_norms
from clearhead.claims.ingredients.small_models import new_model
from clearhead.config import InitConfig
from clearhead.model.init import initialise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DEPTHS = (2, 6, 12, 24)
D_MODEL, VOCABULARY, ROWS, LENGTH = 128, 512, 4, 64
LENGTH_KEPT = InitConfig(std=None, deep=False, tables=1.0)
"""Weights of variance 1 / d, as the theorem has them, and vectors of tokens of variance 1."""


def measure(run: Run) -> Measured:
    n_draws = 2 if run.quick else 8
    tick = run.progress(2 * n_draws * len(DEPTHS), "first gradients")
    norms: dict[str, list[float]] = {}
    placements: tuple[Placement, ...] = ("pre", "post")
    for placement in placements:
        norms[placement] = []
        for n_layers in DEPTHS:
            drawn = []
            for i in range(n_draws):
                drawn.append(last_gradient(placement, n_layers, seed=n_draws * run.seed + i))
                tick()
            norms[placement].append(sum(drawn) / n_draws)
    by_law = [norm * math.sqrt(n_layers) for norm, n_layers in zip(norms["pre"], DEPTHS, strict=True)]
    middle = sum(by_law) / len(by_law)
    return Measured(
        values={
            "Pre-LN, farthest from its law": 100 * max(abs(one / middle - 1) for one in by_law),
            "Post-LN, greatest to least": max(norms["post"]) / min(norms["post"]),
            "Pre-LN, power of the depth": slope(norms["pre"]),
            "Post-LN, power of the depth": slope(norms["post"]),
        },
        series={"depths": DEPTHS, **norms},
    )


def last_gradient(placement: Placement, n_layers: int, seed: int) -> float:
    """The length of the gradient of the last layer's last matrix, on random tokens, before any step."""
    return first_gradients(placement, n_layers, seed, [n_layers - 1])[0]


def first_gradients(placement: Placement, n_layers: int, seed: int, layers: Sequence[int]) -> list[float]:
    """The same of each of some layers, from one pass back."""
    model = new_model(decoder_with_norms(placement, n_layers, d_model=D_MODEL, vocab_size=VOCABULARY), seed)
    initialise(model, LENGTH_KEPT)
    tokens_BT = torch.randint(VOCABULARY, (ROWS, LENGTH))
    weights = [model.get_parameter(f"layers.{layer}.ffn.down_proj.weight") for layer in layers]
    gradients = torch.autograd.grad(next_token_loss(model(tokens_BT), tokens_BT), weights)
    return [float(gradient.norm()) for gradient in gradients]


def slope(norms: Sequence[float]) -> float:
    """Of the logarithm of the gradient by that of the depth, by least squares."""
    x, y = torch.tensor(DEPTHS).double().log(), torch.tensor(norms).double().log()
    x = x - x.mean()
    return float((x * y).sum() / x.square().sum())


def draw(results: Sequence[Measured]) -> Figure:
    figure, (axes,) = figures.panels(width=6.6, height=4.2)
    styles = figures.styles()
    for placement, name in (("post", "Post-LN"), ("pre", "Pre-LN")):
        figures.curve(axes, DEPTHS, [result.series[placement] for result in results], name, next(styles))
    means = [sum(result.series["pre"][i] for result in results) / len(results) for i in range(len(DEPTHS))]
    scale = sum(mean * math.sqrt(depth) for mean, depth in zip(means, DEPTHS, strict=True)) / len(DEPTHS)
    law = [scale / math.sqrt(depth) for depth in DEPTHS]
    axes.plot(DEPTHS, law, color=figures.INK, linewidth=1.2, linestyle=(0, (6, 3)), label="1/sqrt(L), ±15 %")
    axes.fill_between(DEPTHS, [0.85 * y for y in law], [1.15 * y for y in law], color=figures.FAINT, alpha=0.15, lw=0)
    axes.set(xscale="log", yscale="log", xlabel="layers L", ylabel="length of the last matrix's gradient")
    axes.set_xticks(DEPTHS, [str(depth) for depth in DEPTHS])
    axes.set_yticks((0.2, 0.5, 1.0), ("0.2", "0.5", "1"))
    axes.minorticks_off()
    axes.legend(loc="lower left")
    return figure


CLAIM = Claim(
    says="Before the first step of training, the gradient of the last layer's feed-forward is as large in a deep model "
    "as in a shallow one when norms stand after the addition (Post-LN), and falls as 1/sqrt(L) with the number of "
    "layers L when they stand before the sub-layer (Pre-LN). So a rate that suits Pre-LN's start is too high for "
    "Post-LN's, which therefore needs a warm-up.",
    source=Source(
        statements=(44,), paper="Xiong 2020, On Layer Normalization in the Transformer Architecture, theorem 1"
    ),
    how="Decoders of 2, 6, 12 and 24 layers, 128 wide, that differ in where LayerNorm stands; weights are drawn as in "
    "the theorem (variance 1/d), tokens at random. The length of the gradient of the last layer's down_proj is taken "
    "before any step, as the mean over eight draws of the weights (two in a quick run). What follows for training is "
    "the claim warm-up.",
    marks=(
        Mark(
            of="Pre-LN, farthest from its law",
            why="The gradient times sqrt(L) should be one number; seeds gave it within 7 to 8 % of its mean at all "
            "four depths, and with a gradient that stays it would be 60 % off.",
            high=15,
            unit="%",
        ),
        Mark(
            of="Post-LN, greatest to least",
            why="It should not change with depth; pilots gave 1.2, and 1/sqrt(L) would give 3.5.",
            high=1.3,
        ),
    ),
    measure=measure,
    draw=draw,
    seeds=3,
    cost=Cost(minutes=0.2),
)
