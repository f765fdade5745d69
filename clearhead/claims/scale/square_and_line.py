"""A head computes n^2 numbers; what is kept for the next token grows along a line."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import linear_regression
from typing import TYPE_CHECKING

import torch

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.small_models import attention, block, decoder, new_model
from clearhead.costs import counts
from clearhead.costs.counter import count_flops
from clearhead.lens.record import look
from clearhead.model.transformer import Transformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTHS = (64, 128, 256, 512, 1024)
MIXER = attention(4, 16)
VOCAB = 64


def measure(run: Run) -> Measured:
    lengths = LENGTHS[:4] if run.quick else LENGTHS
    model = new_model(decoder((block(MIXER, 128),) * 2, d_model=64, vocab_size=VOCAB), run.seed)
    generator = torch.Generator().manual_seed(run.seed)
    tick = run.progress(len(lengths), "lengths")
    rows = []
    for n in lengths:
        rows.append(counted(model, torch.randint(VOCAB, (1, n), generator=generator)))
        tick()
    told = [formulas(model, n) for n in lengths]
    pattern, flops, products, cache = map(list, zip(*rows, strict=True))
    return Measured(
        values={
            "exponent of a head's pattern": exponent(lengths, pattern),
            "exponent of attention's own products": exponent(lengths, products),
            "exponent of the cache": exponent(lengths, cache),
            "counts that differ from the formula": sum(
                a != b for row, formula in zip(rows, told, strict=True) for a, b in zip(row, formula, strict=True)
            ),
            f"numbers of a head at {lengths[-1]:,} tokens": pattern[-1],
            f"FLOPs of a pass over {lengths[-1]:,} tokens": flops[-1],
            f"bytes of the cache at {lengths[-1]:,} tokens": cache[-1],
        },
        series={"n": list(lengths), "pattern": pattern, "products": products, "cache": cache},
    )


@torch.no_grad()
def counted(model: Transformer, tokens_BT: torch.Tensor) -> tuple[int, int, int, int]:
    """Of a pass: the numbers of one head's pattern, all FLOPs, those that are not linear, the bytes that are kept."""
    seen = look(model, tokens_BT, "layers.0.mixer.pattern")["layers.0.mixer.pattern"]
    flops = count_flops(lambda: model(tokens_BT, backend="reference"))
    # a n + b n^2 at n and at 2 n: what twice the first lacks to the second is 2 b n^2.
    twice = count_flops(lambda: model(tokens_BT.repeat(1, 2), backend="reference"))
    state = model.new_state()
    model(tokens_BT, state=state)
    cache = sum(x.nbytes for layer in state.layers for x in layer.tensors().values())
    return seen[0, 0].numel(), flops, (twice - 2 * flops) // 2, cache


def formulas(model: Transformer, n: int) -> tuple[int, int, int, int]:
    """The same from the config alone."""
    told = counts(model)
    flops = told.flops(1, n)
    return n * n, flops.total, flops.quadratic, told.state(1, n, 4).total


def exponent(x: Sequence[float], y: Sequence[float]) -> float:
    """The slope of the line through the logarithms."""
    logs = torch.tensor([list(x), list(y)], dtype=torch.float64).log().tolist()
    return float(linear_regression(*logs).slope)


def draw(results: Sequence[Measured]) -> Figure:
    figure, (left, right) = figures.panels(2, width=5.2)
    series = results[0].series
    n = series["n"]
    plain = figures.styles()
    for axes, names in ((left, ("pattern", "products")), (right, ("cache",))):
        for name in names:
            axes.plot(n, series[name], label=WORDS[name], **next(plain))
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=10)
        axes.set_xticks(n, [f"{x:,}" for x in n])
        axes.minorticks_off()
        axes.set_xlabel("tokens n")
    ends = [n[0], n[-1]]
    for axes, name, power in ((left, "pattern", 2), (right, "cache", 1)):
        line = [series[name][0] * (x / n[0]) ** power * 0.6 for x in ends]
        axes.plot(ends, line, color=figures.INK, linewidth=1.2, linestyle=(0, (6, 3)), label=f"slope {power}")
        axes.legend()
    left.set_ylabel("numbers, or FLOPs")
    left.set_title("what a pass computes")
    right.set_ylabel("bytes")
    right.set_title("what is kept for the next token")
    return figure


WORDS = {
    "pattern": "numbers in the pattern of one head",
    "products": "FLOPs of attention's own products",
    "cache": "keys and values of all layers",
}

EXACT = 1e-9

CLAIM = Claim(
    says="One head in one layer computes n² numbers for n tokens, and the cache of keys and values grows linearly.",
    source=Source(statements=(58,), paper="Vaswani 2017, section 4 and table 1: O(n² d) a layer"),
    how="A small decoder (2 layers, 4 heads of 16, float32) reads texts of 64 to 1,024 random tokens (to 512 in a "
    "quick run). The pattern of a head is looked at and its numbers counted; torch's counter gives the FLOPs of the "
    "pass, and what doubling a text adds beyond doubling the FLOPs is attention's own products; the bytes of the cache "
    "are those of the tensors in the state. Exponents are slopes of logarithms. Each count is compared with the "
    "formulas of `clearhead cost`. That the cache dominates memory is not measured here.",
    marks=(
        Mark(
            of="exponent of a head's pattern",
            low=2 - EXACT,
            high=2 + EXACT,
            why="every query has one number for every key, so the count is n² exactly",
        ),
        Mark(
            of="exponent of attention's own products",
            low=2 - EXACT,
            high=2 + EXACT,
            why="both products go through all n² pairs",
        ),
        Mark(
            of="exponent of the cache",
            low=1 - EXACT,
            high=1 + EXACT,
            why="each token adds its own keys and values and nothing else",
        ),
        Mark(
            of="counts that differ from the formula",
            low=0,
            high=0,
            why="these are counts and not estimates: formula and pass agree to the last one",
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.1),
)
