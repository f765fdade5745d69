"""Without positions, attention can't tell the order of its input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.small_models import NORM, attention, block, new_model
from clearhead.config import (
    AlibiConfig,
    EmbedConfig,
    LearnedPositions,
    RotaryConfig,
    SinusoidalPositions,
    StackConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.lens import look

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, VOCABULARY, LENGTH, ORDERS = 64, 50, 24, 8
BEFORE: dict[str, LearnedPositions | SinusoidalPositions] = {
    "learned": LearnedPositions(n=LENGTH),
    "sinusoids": SinusoidalPositions(n=LENGTH),
}
"""Positions that are added to the tokens' vectors."""
WITHIN: dict[str, RotaryConfig | AlibiConfig] = {"rotary": RotaryConfig(), "ALiBi": AlibiConfig()}
"""Positions that attention itself is given."""
KINDS = ("none", "none, causal", *BEFORE, *WITHIN)


def config_with(kind: str) -> TransformerConfig:
    """Two blocks, each with attention and a feed-forward, and positions of this kind."""
    mixer = replace(attention(4, WIDTH // 4, causal="causal" in kind), positions=WITHIN.get(kind))
    embed = EmbedConfig(front=TokensConfig(vocab_size=VOCABULARY), positions=BEFORE.get(kind))
    stack = StackConfig(embed=embed, blocks=(block(mixer, 2 * WIDTH),) * 2, norm=NORM)
    return TransformerConfig(d_model=WIDTH, encoder=stack)


def measure(run: Run) -> Measured:
    generator = torch.Generator().manual_seed(run.seed)
    tokens_BT = torch.randint(VOCABULARY, (1, LENGTH), generator=generator)
    orders = [torch.randperm(LENGTH, generator=generator) for _ in range(ORDERS)]
    worst, least, pattern = {}, {}, {}
    for kind in KINDS:
        model = new_model(config_with(kind), run.seed).double()
        found = [moved(model, tokens_BT, order_T) for order_T in orders]
        worst[kind], pattern[kind] = (max(errors) for errors in zip(*found, strict=True))
        least[kind] = min(error for error, _ in found)
    return Measured(
        values={
            "error without positions": worst["none"],
            "error of the pattern without positions": pattern["none"],
            **{f"error with {kind}": least[kind] for kind in KINDS[2:]},
            "error without positions, causal": least["none, causal"],
        },
        series={"worst": worst},
    )


def moved(model: torch.nn.Module, tokens_BT: torch.Tensor, order_T: torch.Tensor) -> tuple[float, float]:
    """How far the output of the permuted input is from the permuted output, at most and by the largest number there
    is; and how far the last layer's pattern is from the pattern permuted in both directions.
    """
    name = "layers.1.mixer.pattern"
    seen, permuted = (look(model, tokens, name) for tokens in (tokens_BT, tokens_BT[:, order_T]))  # type: ignore[arg-type]
    error = (permuted.output - seen.output[:, order_T]).abs().max() / seen.output.abs().max()
    pattern = (permuted[name] - seen[name][:, :, order_T][..., order_T]).abs().max()
    return float(error), float(pattern)


def draw(results: Sequence[Measured]) -> Figure:
    figure, (axes,) = figures.panels()
    worst = results[0].series["worst"]
    for i, kind in enumerate(KINDS):
        axes.vlines(i, 1e-17, max(worst[kind], 1e-17), color=figures.COLOURS[0], linewidth=2)
        axes.plot(i, max(worst[kind], 1e-17), "o", color=figures.COLOURS[0])
        axes.annotate(
            f"{worst[kind]:.1e}",
            (i, max(worst[kind], 1e-17)),
            ha="center",
            va="bottom",
            xytext=(0, 6),
            textcoords="offset points",
        )
    axes.set_yscale("log")
    axes.set_ylim(1e-17, 300)
    axes.set_xlim(-0.6, 6.9)
    figures.mark(axes, 1e-12, "mark: rounding")
    axes.set_xticks(range(len(KINDS)), ["none", "none,\ncausal mask", *KINDS[2:]])
    axes.set_xlabel("positions")
    axes.set_ylabel("largest error of f(permuted x) = permuted f(x)")
    axes.grid(visible=False, axis="x")
    return figure


CLAIM = Claim(
    says="Attention alone is blind to order: permuting the input permutes the output in the same way, and changes "
    "nothing else. Positions, of whatever kind, end that.",
    source=Source(statements=(34,), paper="Vaswani 2017, section 3.5; Dosovitskiy 2020, appendix D.4"),
    how="Two whole blocks (attention that sees both ways, feed-forward, norms) in float64 read 24 random tokens and "
    "the same tokens in eight other orders. What comes out of the permuted input is held against the permuted output, "
    "by the largest number in it; so is the last pattern, permuted both ways. It is done without positions, and with "
    "learned ones, sinusoids, rotary ones and ALiBi. A causal mask alone lets order in too, since a token then sees "
    "those before it only; this is reported beside.",
    marks=(
        Mark(of="error without positions", high=1e-12, why="Only the rounding of sums taken in another order is left."),
        Mark(of="error of the pattern without positions", high=1e-12, why="The same, of weights between 0 and 1."),
        *(
            Mark(
                of=f"error with {kind}",
                low=1e-4,
                why="Above rounding by eight orders of magnitude: even in untrained weights the order shows.",
            )
            for kind in KINDS[2:]
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.02),
)
