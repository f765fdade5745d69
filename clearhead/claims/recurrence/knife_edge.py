"""Only a factor of exactly 1 keeps the signal, and training does not hold it there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import log10
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.fitting import fit
from clearhead.claims.ingredients.recurrent_nets import gradient_by_lag, network, recurrent_matrix

if TYPE_CHECKING:
    from matplotlib.figure import Figure

GAINS = (0.98, 0.99, 1.0, 1.01, 1.02)
LAG = 200
DELAY, ROWS, RATE, STEPS = 30, 32, 1e-3, 300
NOISE, QUESTION = 2, 4
"""Words 0 and 1 say nothing, 2 and 3 are the bit, 4 asks for it."""


def measure(run: Run) -> Measured:
    tick = run.progress(len(GAINS) + STEPS, "networks and steps")
    linear = {}
    for gain in GAINS:
        linear[gain] = gradient_by_lag(network("simple", run.seed, silent=True, gain=gain), LAG, run.seed)
        tick()
    trained = remember_a_bit(run.seed, tick)
    largest, least = trained["largest"], trained["least"]
    values = {
        "gain 0.98 over 200 steps": linear[0.98][LAG],
        "gain 1 over 200 steps": linear[1.0][LAG],
        "gain 1.02 over 200 steps": linear[1.02][LAG],
        "largest singular value after 10 steps": largest[1],
        "largest singular value, trained": largest[-1],
        "least singular value, trained": least[-1],
        "bits remembered at the end": trained["right"],
        "trained matrix over 200 steps: most, in powers of ten": log10(trained["most"]),
        "trained matrix over 200 steps: least, in powers of ten": log10(trained["fewest"]),
        "gradient in the trained network over 200 steps": trained["gradient"],
    }
    series = {
        "linear": {f"{gain:g}": ratios for gain, ratios in linear.items()},
        "singular": {"step": trained["step"], "largest": largest, "least": least},
    }
    return Measured(values=values, series=series)


def remember_a_bit(seed: int, tick: Callable[[], None]) -> dict[str, Any]:
    """A simple network that begins orthogonal learns to say at the end which of two words stood at the beginning:
    its recurrent matrix's singular values on the way, and what that matrix does over 200 steps.
    """
    model = network("simple", seed).float()
    assert model.embed.tokens is not None
    torch.nn.init.normal_(model.embed.tokens.weight, std=0.1)
    draw = torch.Generator().manual_seed(seed)
    history: dict[str, list[float]] = {"step": [], "largest": [], "least": [], "right": []}

    def record(step: int) -> None:
        singular = torch.linalg.svdvals(recurrent_matrix(model).detach().double())
        history["step"].append(step)
        history["largest"].append(float(singular[0]))
        history["least"].append(float(singular[-1]))

    def loss(step: int) -> Tensor:
        if step % 10 == 0:
            record(step)
        bit_B = torch.randint(2, (ROWS,), generator=draw)
        words_BT = torch.randint(NOISE, (ROWS, DELAY + 2), generator=draw)
        words_BT[:, 0], words_BT[:, -1] = NOISE + bit_B, QUESTION
        scores_B2 = model(words_BT, last=1)[:, 0, NOISE:QUESTION]
        history["right"].append(float((scores_B2.argmax(-1) == bit_B).double().mean()))
        return F.cross_entropy(scores_B2, bit_B)

    fit(model, loss, STEPS, lr=RATE, tick=tick)
    record(STEPS)
    over_lag = torch.linalg.svdvals(torch.linalg.matrix_power(recurrent_matrix(model).detach().double(), LAG))
    return {
        **history,
        "right": sum(history["right"][-20:]) / 20,
        "most": float(over_lag[0]),
        "fewest": float(over_lag[-1]),
        "gradient": gradient_by_lag(model.double(), LAG, seed)[LAG],
    }


def draw(results: Sequence[Measured]) -> Figure:
    figure, (edge, drift) = figures.panels(2, width=5.6)
    for gain, style in zip(results[0].series["linear"], figures.styles(), strict=False):
        runs = [result.series["linear"][gain] for result in results]
        figures.curve(edge, range(LAG + 1), runs, f"gain {gain}", style | {"markevery": 20})
    edge.annotate(
        "0.98^200 = 0.0176", (LAG, 0.98**LAG), ha="right", va="top", xytext=(-4, -8), textcoords="offset points"
    )
    edge.annotate(
        "1.02^200 = 52.5", (LAG, 1.02**LAG), ha="right", va="bottom", xytext=(-4, 8), textcoords="offset points"
    )
    edge.set(
        title="a linear network of 64 units",
        yscale="log",
        ylim=(0.004, 250),
        xlabel="steps back",
        ylabel="gradient, as a multiple of that at the last step",
    )
    for name, style in zip(("largest", "least"), figures.styles(), strict=False):
        runs = [result.series["singular"][name] for result in results]
        steps = results[0].series["singular"]["step"]
        figures.curve(drift, steps, runs, f"{name} singular value", style | {"markevery": 3})
    figures.mark(drift, 1.02, "bars: outside 0.98 to 1.02")
    figures.mark(drift, 0.98, "")
    drift.set(title="an orthogonal network learns to remember a bit", xlabel="training step", ylabel="singular value")
    edge.legend(loc="upper left")
    drift.legend(loc="center right")
    return figure


CLAIM = Claim(
    says="Only a factor of exactly 1 keeps the signal: a gain of 0.98 leaves a fiftieth of the gradient after 200 "
    "steps and one of 1.02 makes fifty of it. And training does not hold it at 1: the singular values of a recurrent "
    "matrix that begins orthogonal leave that range as the network learns.",
    source=Source(
        statements=(6,),
        paper="Hochreiter 1997, Long short-term memory, section 3 (constant error flow); Arjovsky 2016, Unitary "
        "evolution recurrent neural networks, section 2",
    ),
    how="The gradient by automatic differentiation through 64 units with an orthogonal recurrent matrix times a gain, "
    "at zero input, where tanh is a line; in float64. Then a simple network of 64 units that begins orthogonal (gain "
    "1) learns with Adam, rate 1e-3, for 300 steps of 32 rows, which of two words stood 31 words ago; the largest and "
    "least singular value of its recurrent matrix on the way (ten steps bring the largest to 1.12, which is reported). "
    "What the trained matrix does over 200 steps in a linear network: the largest and least singular value of its "
    "200th power. The marks are on the matrix alone. In the trained network itself the slope of tanh takes off what "
    "the matrix adds, and the gradient over 200 steps of random words, reported beside, is 5 to 9 times that at the "
    "last step: a factor of about 1.01 a step, much nearer to the edge than the matrix is. Networks that are kept "
    "orthogonal by their construction are not measured.",
    marks=(
        Mark(of="gain 0.98 over 200 steps", low=0.0175, high=0.0177, why="0.98^200 = 0.0176."),
        Mark(of="gain 1 over 200 steps", low=0.9999, high=1.0001, why="1^200 = 1; first weights are of float32."),
        Mark(of="gain 1.02 over 200 steps", low=52.4, high=52.6, why="1.02^200 = 52.5."),
        Mark(
            of="largest singular value, trained",
            low=1.02,
            why="Beyond the knife edge; the pilots' three seeds ended at 1.57 to 1.64.",
        ),
        Mark(
            of="least singular value, trained",
            high=0.98,
            why="Below the knife edge; the pilots ended at 0.87 to 0.91.",
        ),
        Mark(
            of="trained matrix over 200 steps: most, in powers of ten",
            low=log10(52.5),
            why="Further off than a gain of 1.02, which is 10^1.7.",
        ),
        Mark(
            of="bits remembered at the end",
            low=0.95,
            why="It is a network that learned its task, and not one that broke.",
        ),
    ),
    measure=measure,
    draw=draw,
    seeds=3,
    cost=Cost(minutes=0.1),
)
