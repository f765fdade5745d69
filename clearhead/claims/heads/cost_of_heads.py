"""Eight heads of 64 cost what one head of 512 does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.small_models import attention, block, decoder, new_model
from clearhead.costs import counts
from clearhead.costs.counter import count_flops
from clearhead.lens import at, look
from clearhead.model.transformer import Transformer
from clearhead.nn.attention import Attention
from clearhead.nn.block import Block

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, VOCABULARY = 512, 16
N_HEADS = (1, 2, 4, 8, 16, 32)
CHANGED = 3
"""The head whose queries are changed, of eight."""


def model_with(n_heads: int, seed: int) -> Transformer:
    """One layer of attention, whose heads share the width of the stream between them."""
    layer = block(attention(n_heads, WIDTH // n_heads), None)
    return new_model(decoder((layer,), d_model=WIDTH, vocab_size=VOCABULARY), seed)


def measure(run: Run) -> Measured:
    length = 128 if run.quick else 512
    tokens_BT = torch.randint(VOCABULARY, (1, length), generator=torch.Generator().manual_seed(run.seed))
    formula, counted, numbers, cells = [], [], [], []
    for n_heads in N_HEADS:
        model = model_with(n_heads, run.seed)
        formula.append(counts(model).flops(1, length).total)
        with torch.no_grad():
            counted.append(count_flops(lambda model=model: model(tokens_BT)))  # type: ignore[misc]
        numbers.append(sum(weight.numel() for weight in _attention(model).parameters()))
        cells.append(look(model, tokens_BT, "layers.0.mixer.pattern")["layers.0.mixer.pattern"].numel())
    eight = N_HEADS.index(8)
    concatenation, own, strangers = apart(model_with(8, run.seed).double(), tokens_BT)
    return Measured(
        values={
            "parameters, eight heads to one": numbers[eight] / numbers[0],
            "operations, eight heads to one": counted[eight] / counted[0],
            "operations, eight heads to one, by formula": formula[eight] / formula[0],
            "cells of the pattern, eight heads to one": cells[eight] / cells[0],
            "parameters of eight heads": float(numbers[eight]),
            "operations of eight heads": float(counted[eight]),
            "error of W_O times the heads side by side": concatenation,
            "change in the head's own pattern": own,
            "change in other heads' patterns": strangers,
        },
        series={"parameters": numbers, "operations": counted, "cells": cells, "length": length},
    )


def apart(model: Transformer, tokens_BT: torch.Tensor) -> tuple[float, float, float]:
    """How far the layer's output is from W_O [z_1 ... z_8], and how much a head's pattern, and at most one of the
    others', changes when its queries do.
    """
    seen = look(model, tokens_BT, "layers.0.mixer.*")
    z_BHTK, pattern_BHTS = seen["layers.0.mixer.z"], seen["layers.0.mixer.pattern"]
    o_DE = _attention(model).o_proj.weight.detach()
    side_by_side_BTE = torch.cat(list(z_BHTK.unbind(1)), dim=-1)
    error = (side_by_side_BTE @ o_DE.T - seen["layers.0.mixer.out"]).abs().max()
    changed = at(lambda q_BHTK: 2 * q_BHTK, heads=[CHANGED])
    after_BHTS = look(model, tokens_BT, "layers.0.mixer.pattern", edits={"layers.0.mixer.q": changed})[
        "layers.0.mixer.pattern"
    ]
    change_H = (after_BHTS - pattern_BHTS).abs().amax(dim=(0, 2, 3))
    others = [float(change) for head, change in enumerate(change_H) if head != CHANGED]
    return float(error), float(change_H[CHANGED]), max(others)


def _attention(model: Transformer) -> Attention:
    layer = model.layers[0]
    assert isinstance(layer, Block) and isinstance(layer.mixer, Attention)
    return layer.mixer


def draw(results: Sequence[Measured]) -> Figure:
    series = results[0].series
    figure, (axes,) = figures.panels()
    names = {
        "cells": "numbers that the softmax makes",
        "operations": "operations of a pass, counted",
        "parameters": "parameters of attention",
    }
    for (key, name), style in zip(names.items(), figures.styles(), strict=False):
        axes.plot(N_HEADS, [value / series[key][0] for value in series[key]], label=name, **style)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(N_HEADS, [f"{n} x {WIDTH // n}" for n in N_HEADS])
    axes.set_yticks(N_HEADS, [str(n) for n in N_HEADS])
    axes.set_xlabel("heads x their width")
    axes.set_ylabel("times what one head of 512 has")
    axes.plot((8, 8), (1, 8), "_", color=figures.INK, markersize=26, markeredgewidth=2)
    for times in (1, 8):
        axes.annotate(f"mark: {times}", (8, times), xytext=(16, 4), textcoords="offset points", fontsize=9)
    axes.legend(loc="upper left")
    return figure


CLAIM = Claim(
    says="Each head has queries, keys, values and a pattern of its own; what they give is put side by side and "
    "multiplied by W_O. Eight heads of 64 cost what one head of the full width 512 costs.",
    source=Source(statements=(29, 30), paper="Vaswani 2017, section 3.2.2, last paragraph"),
    how="One layer of attention in a stream of 512 is built with 1 to 32 heads that share the width. Its parameters "
    "are counted, and the operations of one pass over 512 tokens (128 in a quick run), by the formula and by torch's "
    "counter of what really ran (products of matrices). Counted so, the price is the same to the last operation; the "
    "paper says 'similar', and what differs is the softmax: eight heads make eight patterns of T x T and not one. In "
    "float64, W_O times the heads side by side is held against what the layer adds to the stream, and the queries of "
    "one head are doubled to see that its own pattern moves and no other head's does.",
    marks=(
        Mark(
            of="parameters, eight heads to one",
            low=1.0,
            high=1.0,
            why="Four matrices of 512 x 512, however their rows are shared out among heads.",
        ),
        Mark(
            of="operations, eight heads to one",
            low=1.0,
            high=1.0,
            why="Each product with a weight is the same; eight products of width 64 are one of width 512.",
        ),
        Mark(of="operations, eight heads to one, by formula", low=1.0, high=1.0, why="The formula says the same."),
        Mark(
            of="cells of the pattern, eight heads to one",
            low=8.0,
            high=8.0,
            why="Each head has a pattern of its own: this is what more heads cost.",
        ),
        Mark(
            of="error of W_O times the heads side by side",
            high=1e-12,
            why="It is what the formula says, so only float64's rounding may be left.",
        ),
        Mark(
            of="change in the head's own pattern",
            low=1e-3,
            why="Its own queries make it; a pattern's cells are shares of one.",
        ),
        Mark(
            of="change in other heads' patterns",
            high=0.0,
            why="No head reads another's queries within a layer.",
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.05),
)
