"""A lookup with weights that are positive and sum to one, so that its answer is a blend of the values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.checkpoints.load import load
from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.sentences import SENTENCES
from clearhead.lens import look
from clearhead.ops.attention import normalise
from clearhead.ops.backends import BACKENDS, Request, attend
from clearhead.ops.masks import Causal, Everything, Mask, Window, bind

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MASKS: dict[str, Mask] = {"all": Everything(), "causal": Causal(), "window": Causal() & Window(7)}
KEYS, HEADS, ROWS = 64, 2, 8
COMPILED = "flex"
"""The backend whose kernel has to be compiled first, which is left out of a quick run."""
LEAST = 2.0**-149
"""The least positive number of float32."""


def measure(run: Run) -> Measured:
    generator = torch.Generator().manual_seed(run.seed)
    names = [name for name in float32_backends() if not (run.quick and name == COMPILED)]
    patterns = [read_out(name, MASKS[mask], generator) for name in names for mask in MASKS]
    least = min(float(pattern[seen].min()) for pattern, seen, _ in patterns)
    off = max(float((pattern.double().sum(-1) - 1).abs().max()) for pattern, _, _ in patterns)
    by_formula = max(float((pattern - exact).abs().max()) for pattern, _, exact in patterns)
    outside = max(beyond(name, mask, generator) for name in names for mask in MASKS.values())
    model_weights, model_off = in_model(SENTENCES[: 2 if run.quick else 10])
    gaps = torch.linspace(0, 120, 241)
    return Measured(
        values={
            "least weight, random": least,
            "largest error of a row's sum, random": off,
            "difference from the softmax of dot products": by_formula,
            "largest step outside the values": outside,
            "least weight, in a model": float(model_weights.min()),
            "largest error of a row's sum, in a model": model_off,
            "gap of scores from which float32 gives zero": underflow(torch.float32),
            "gap of scores from which float64 gives zero": underflow(torch.float64),
        },
        series={
            "histogram": torch.histc(model_weights.log10(), 36, -9, 0).tolist(),
            "n": model_weights.numel(),
            "gaps": gaps.tolist(),
            "underflow": underflow(torch.float32),
            "float32": second_weight(gaps).tolist(),
        },
    )


def float32_backends() -> list[str]:
    """Every backend that takes what is asked here: nothing but float32 on a CPU."""
    asked = Request("cpu", torch.float32)
    return [name for name, backend in BACKENDS.items() if backend.on("cpu").lacks(asked) is None]


def read_out(name: str, mask: Mask, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """The weights that a backend uses, which of them a query may see, and the formula in float64: where each key's
    value is 1 at a place of its own and 0 elsewhere, the answer is the weights.
    """
    q_BHTK, k_BHSK = (torch.randn(ROWS, HEADS, KEYS, KEYS, generator=generator) for _ in range(2))
    v_BHSV = torch.eye(KEYS).expand(ROWS, HEADS, KEYS, KEYS).contiguous()
    bound = bind(mask, KEYS, KEYS)
    weights_BHTS = attend(q_BHTK, k_BHSK, v_BHSV, bound, backend=name, scale=KEYS**-0.5)
    seen_BHTS = bound.dense.expand_as(weights_BHTS)
    dots_BHTS = torch.einsum("bhtk,bhsk->bhts", q_BHTK.double(), k_BHSK.double()) * KEYS**-0.5
    return weights_BHTS, seen_BHTS, dots_BHTS.masked_fill(~seen_BHTS, -torch.inf).softmax(-1)


def beyond(name: str, mask: Mask, generator: torch.Generator) -> float:
    """How far an answer lies outside the least and the greatest of the values, in any dimension: a blend never does."""
    q_BHTK, k_BHSK, v_BHSV = (torch.randn(ROWS, HEADS, KEYS, KEYS, generator=generator) for _ in range(3))
    z_BHTV = attend(q_BHTK, k_BHSK, v_BHSV, bind(mask, KEYS, KEYS), backend=name, scale=KEYS**-0.5)
    low, high = v_BHSV.amin(2, keepdim=True), v_BHSV.amax(2, keepdim=True)
    return float(torch.maximum(low - z_BHTV, z_BHTV - high).max())


def in_model(texts: Sequence[str]) -> tuple[Tensor, float]:
    """All weights that clear-gpt gives to tokens that may be seen, and how far a row's sum is from one."""
    model, weights, off = load("clear-gpt"), [], 0.0
    for text in texts:
        for pattern_BHTS in look(model, text).values():
            n = pattern_BHTS.shape[-1]
            weights.append(pattern_BHTS[..., torch.ones(n, n, dtype=torch.bool).tril()].flatten())
            off = max(off, float((pattern_BHTS.double().sum(-1) - 1).abs().max()))
    return torch.cat(weights), off


def second_weight(gaps_N: Tensor) -> Tensor:
    """Of two keys, the weight of the one whose score is lower by each gap."""
    scores_NS = torch.stack([torch.zeros_like(gaps_N), -gaps_N], dim=-1)
    return normalise(scores_NS[None, None])[0, 0, :, 1]


def underflow(dtype: torch.dtype) -> float:
    """From which gap on that weight is exactly zero, found by halving."""
    low, high = 0.0, 1000.0
    while high - low > 1e-3:
        middle = (low + high) / 2
        zero = float(second_weight(torch.tensor([middle], dtype=dtype))) == 0
        low, high = (low, middle) if zero else (middle, high)
    return high


def draw(results: Sequence[Measured]) -> Figure:
    series = results[0].series
    figure, (axes, edge) = figures.panels(2, width=5.6)
    axes.bar([-9 + 0.25 * (i + 0.5) for i in range(36)], series["histogram"], width=0.22, color=figures.COLOURS[0])
    axes.set_xlabel("weight, as a power of ten")
    axes.set_ylabel(f"weights in clear-gpt, of {series['n']:,}")
    axes.set_title("Small, and never zero")
    styles = figures.styles()
    gaps = series["gaps"]
    exact = [-gap / math.log(10) for gap in gaps]
    edge.plot(gaps, exact, label="exact", **{**next(styles), "marker": ""})
    found = [(gap, math.log10(weight)) for gap, weight in zip(gaps, series["float32"], strict=True) if weight > 0]
    edge.plot(*zip(*found[::8], strict=True), label="float32", **{**next(styles), "linestyle": ""})
    figures.mark(edge, series["underflow"], "exactly zero", across=False)
    edge.set_xlabel("the lower of two scores is lower by")
    edge.set_ylabel("its weight, as a power of ten")
    edge.set_title("Where float32 ends")
    edge.legend()
    return figure


CLAIM = Claim(
    says="Attention is a dictionary lookup with partial matches: a query is compared with every key by a dot product, "
    "the softmax makes of it weights that are positive and sum to one, and the answer is a blend of the values.",
    source=Source(statements=(11, 12), paper="Bahdanau 2014, section 3.1; Vaswani 2017, section 3.2"),
    how="Weights of every backend of the library that takes float32 are read out of its answers, by values that are 1 "
    "at a place of their own, under three masks (all, causal, a causal window of 7), with 64 random keys of width 64; "
    "and those of clear-gpt on ten sentences. Answers to random values are held against the least and greatest value "
    "in each dimension, which a blend can't leave. A quick run leaves out the backend that has to be compiled, and "
    "eight of the sentences. They are held against the softmax of the dot products, in float64. "
    "Positive ends where numbers do: it is reported from which gap between two scores on the lower one's weight is "
    "exactly zero.",
    marks=(
        *(
            Mark(of=f"least weight, {where}", low=LEAST, why="Every token that may be seen gets more than nothing.")
            for where in ("random", "in a model")
        ),
        *(
            Mark(of=f"largest error of a row's sum, {where}", high=1e-5, why="Rounding of 64 numbers in float32.")
            for where in ("random", "in a model")
        ),
        Mark(
            of="difference from the softmax of dot products",
            high=1e-5,
            why="The formula in float64; float32 rounds a score of five by some 1e-6.",
        ),
        Mark(of="largest step outside the values", high=1e-6, why="A blend stays between its parts, but for rounding."),
        Mark(
            of="gap of scores from which float32 gives zero",
            low=87,
            high=105,
            why="exp(-87.3) is the last of float32's full precision and exp(-104) rounds to zero; which of the two "
            "ends it depends on whether the processor keeps the numbers between.",
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.5),
)
