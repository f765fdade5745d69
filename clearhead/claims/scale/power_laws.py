"""Loss falls as a power of the parameters, of the data and of the compute, each by itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Number, Run, Source
from clearhead.claims.ingredients.fitting import fit, next_token_loss
from clearhead.claims.ingredients.small_models import attention, block, decoder, new_model
from clearhead.claims.ingredients.texts import SYMBOLS, python_source, rows
from clearhead.config import TransformerConfig
from clearhead.costs import counts
from clearhead.costs.fit import fit as fit_law
from clearhead.costs.names import EMBEDDING, HEADS
from clearhead.costs.runs import Run as Point
from clearhead.costs.scaling import KAPLAN_COMPUTE, KAPLAN_DATA, KAPLAN_SIZE
from clearhead.errors import ClearheadError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

D_HEAD = 8
KAPLAN = {"parameters": KAPLAN_SIZE[1], "data": KAPLAN_DATA[1], "compute": KAPLAN_COMPUTE[1]}


@dataclass(frozen=True)
class Plan:
    """What is trained."""

    sizes: tuple[tuple[int, int], ...]
    """Widths and layers."""
    data: tuple[int, ...]
    """Characters to learn from, again and again."""
    fixed: tuple[int, int]
    """The size that learns from them."""
    steps: int
    rows: int
    length: int
    first: int
    """The step whose compute of the smallest size is the least of the frontier's."""


FULL = Plan(
    sizes=((16, 2), (24, 3), (40, 4), (72, 4), (104, 4)),
    data=(8_000, 16_000, 32_000, 64_000, 128_000),
    fixed=(40, 4),
    steps=400,
    rows=16,
    length=128,
    first=50,
)
QUICK = Plan(
    sizes=((8, 1), (16, 2), (40, 3)),
    data=(1_000, 4_000, 16_000),
    fixed=(16, 2),
    steps=200,
    rows=8,
    length=64,
    first=25,
)
EPOCHS = 40
Curve = list[tuple[int, float]]
"""Steps, and the loss on text that was held out."""


def parameters(size: tuple[int, int]) -> int:
    """Without embeddings, as Kaplan counts."""
    parts = counts(made(size)).parameters.parts
    return sum(n for part, n in parts.items() if part not in (EMBEDDING, HEADS))


def made(size: tuple[int, int]) -> TransformerConfig:
    width, n_layers = size
    one = block(attention(width // D_HEAD, D_HEAD), width * 8 // 3)
    return decoder((one,) * n_layers, d_model=width, vocab_size=SYMBOLS)


def learned(run: Run, plan: Plan, size: tuple[int, int], n_data: int | None) -> Curve:
    """The curve of a size that learns from the first `n_data` characters; None for all."""
    text, held_out = python_source()
    text = text[:n_data]
    steps = plan.steps
    if n_data is not None:
        steps = min(steps, EPOCHS * n_data // (plan.rows * plan.length))
    name = f"{size[0]} x {size[1]}, {'all' if n_data is None else n_data} characters"

    def make() -> Curve:
        model = new_model(made(size), run.seed)
        generator = torch.Generator().manual_seed(run.seed)
        tests_BT = rows(held_out, 64, plan.length, torch.Generator().manual_seed(1000))
        at = {round(steps / 2 ** (i / 2)) for i in range(10)} if n_data is None else set(range(0, steps + 1, 20))
        curve: Curve = []

        @torch.no_grad()
        def seen(step: int, value: float) -> None:
            if step + 1 in at:
                curve.append((step + 1, next_token_loss(model(tests_BT), tests_BT).item()))

        def loss(step: int) -> Tensor:
            tokens_BT = rows(text, plan.rows, plan.length, generator)
            return next_token_loss(model(tokens_BT), tokens_BT)

        rate = 8e-3 * (16 / size[0]) ** 0.75
        fit(model, loss, steps, lr=rate, warmup=20, seen=seen, tick=run.progress(steps, name))
        return curve

    return run.kept(f"scaling-{name}", make)


def frontier(curves: Sequence[tuple[int, Curve]], plan: Plan) -> list[tuple[float, float]]:
    """For each of as many budgets as there are sizes, the least loss that any size has come to within it.

    Budgets C = 6 N D lie evenly in their logarithm, from the smallest size's first steps to the largest's last.
    """
    per_step = plan.rows * plan.length
    least, most = curves[0][0] * plan.first, curves[-1][0] * plan.steps
    found = []
    for i in range(len(curves)):
        budget = least * (most / least) ** (i / (len(curves) - 1))
        losses = [loss for n, curve in curves for step, loss in curve if n * step <= budget * 1.001]
        found.append((6 * budget * per_step, min(losses)))
    return found


def law(points: Sequence[tuple[float, float]]) -> tuple[Number, float]:
    """The exponent with its interval (95 of 100 fits to such points), and R squared; NaN where no loss falls."""
    try:
        # To the fit of one quantity it is the same whether it is called tokens or anything else.
        found = fit_law([Point(name="", parameters=1, tokens=round(x), loss=loss) for x, loss in points])
    except ClearheadError:
        return math.nan, math.nan
    value, low, high = found.intervals["exponent"]
    return (value, low, high), found.r_squared


def measure(run: Run) -> Measured:
    plan = QUICK if run.quick else FULL
    curves = [(parameters(size), learned(run, plan, size, None)) for size in plan.sizes]
    ladders = {
        "parameters": [(float(n), curve[-1][1]) for n, curve in curves],
        "data": [(float(n), min(loss for _, loss in learned(run, plan, plan.fixed, n))) for n in plan.data],
        "compute": frontier(curves, plan),
    }
    values: dict[str, Number] = {}
    for of, points in ladders.items():
        exponent, r_squared = law(points)
        values[f"exponent of {of}"] = exponent
        values[f"R squared, {of}"] = r_squared
        values[f"steps up without a lower loss, {of}"] = sum(b >= a for (_, a), (_, b) in pairwise(points))
        values[f"Kaplan's exponent of {of}"] = KAPLAN[of]
    per_step = 6 * plan.rows * plan.length
    in_compute = [[(n * step * per_step, loss) for step, loss in curve] for n, curve in curves]
    return Measured(values=values, series={"ladders": ladders, "curves": in_compute})


def draw(results: Sequence[Measured]) -> Figure:
    figure, panels = figures.panels(3, width=4.6)
    series = results[0].series
    points_style, kaplan_style = (style for style, _ in zip(figures.styles(), range(2), strict=False))
    labels = ("parameters N, without embeddings", "characters D to learn from", "compute C = 6 N D, FLOPs")
    for axes, (of, points), label in zip(panels, series["ladders"].items(), labels, strict=True):
        x, losses = zip(*points, strict=True)
        exponent = results[0].values[f"exponent of {of}"]
        slope = exponent[0] if isinstance(exponent, tuple) else exponent
        if of == "compute":
            for i, curve in enumerate(series["curves"]):
                says = "each size as it learns" if i == 0 else ""
                axes.plot(*zip(*curve, strict=True), color=figures.FAINT, linewidth=0.9, label=says)
        axes.plot(x, losses, label="measured", **(points_style | {"linestyle": "none", "markersize": 7}))
        level = math.exp(sum(math.log(loss) + slope * math.log(at) for at, loss in points) / len(points))
        fitted = f"power law, exponent {slope:.3f}, R² {results[0].values[f'R squared, {of}']:.3f}"
        axes.plot(x, [level * at**-slope for at in x], color=figures.INK, label=fitted)
        kaplan = [losses[0] * (at / x[0]) ** -KAPLAN[of] for at in x]
        axes.plot(x, kaplan, label=f"with Kaplan's exponent, {KAPLAN[of]:.3f}", **(kaplan_style | {"marker": ""}))
        axes.set_xscale("log")
        axes.set_yscale("log")
        ticks = [t / 5 for t in range(5, 25) if min(losses) * 0.9 < t / 5 < max(losses) * 1.15]
        axes.set_ylim(min(losses) * 0.95, max(losses) * 1.15)
        axes.set_yticks(ticks, [f"{t:.1f}" for t in ticks])
        axes.minorticks_off()
        axes.set_xlabel(label)
        axes.set_ylabel("loss on held-out text, nats a character")
        axes.legend()
    return figure


def marks() -> tuple[Mark, ...]:
    """Three for each law."""
    falls = "a power law falls: its whole interval, of 200 fits with the deviations dealt out anew, is above 0"
    straight = "the points lie on a straight line of logarithms, and not somehow lower and lower"
    lower = "each larger one is better than the one before"
    return tuple(
        mark
        for of in KAPLAN
        for mark in (
            Mark(of=f"exponent of {of}", low=1e-6, why=falls),
            Mark(of=f"R squared, {of}", low=0.95, at="full", why=straight),
            Mark(of=f"steps up without a lower loss, {of}", high=0, why=lower),
        )
    )


CLAIM = Claim(
    says="Loss falls as a smooth power law in the number of parameters, in data and in compute, each by itself.",
    source=Source(
        statements=(57,), paper="Kaplan 2020, 'Scaling Laws for Neural Language Models', equations 1.1 to 1.3, figure 1"
    ),
    how="Decoders learn the source of Python's standard library, character by character, and are held against text of "
    "other files. Parameters: five sizes from 6 thousand to half a million (without embeddings), 400 steps of 2,048 "
    "characters of four million each. Data: the third of these sizes learns from the first 8 to 128 thousand "
    "characters, at most forty times over, and its best loss on the way counts, as where training is stopped early. "
    "Compute: five budgets C = 6 N D, evenly spaced in their logarithm, and at each the least loss that any of the "
    "five sizes has come to within it, which can't rise with the budget: there only the straightness of the line could "
    "fail. The exponents are fitted by the library's own least squares; their intervals come from fits to points with "
    "the deviations dealt out anew, of one seed. Kaplan's exponents are told and not judged: they are of another text, "
    "of words in pieces, and of models up to a billion parameters. A quick run has three sizes, three amounts and 200 "
    "smaller steps, and judges that the loss falls, not that the line is straight.",
    marks=marks(),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=4),
)
