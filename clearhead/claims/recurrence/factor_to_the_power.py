"""A recurrent network's gradient is multiplied at every step: a factor to the power of their number."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.recurrent_nets import gradient_by_lag, network, recurrent_matrix
from clearhead.lens import look
from clearhead.model.transformer import Transformer
from clearhead.recurrent import gradient_norms

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FACTORS = (0.9, 1.0, 1.1)
GAINS = (0.9, 1.0, 1.1, 2.0)
LAG, LONG = 100, 200
N_GAUSSIAN = 4


def measure(run: Run) -> Measured:
    tick = run.progress(2 * len(FACTORS) + len(GAINS) + N_GAUSSIAN, "networks")

    def reaching_back(model: Transformer, longest: int = LAG) -> list[float]:
        ratios = gradient_by_lag(model, longest, run.seed)
        tick()
        return ratios

    one_unit = {g: reaching_back(network("simple", run.seed, n_units=1, silent=True, gain=g)) for g in FACTORS}
    linear = {g: reaching_back(network("simple", run.seed, silent=True, gain=g)) for g in FACTORS}
    orthogonal = {g: reaching_back(network("simple", run.seed, gain=g)) for g in GAINS}
    gaussian = []
    for i in range(N_GAUSSIAN):
        model = network("simple", run.seed + 1000 * i, silent=True)
        torch.nn.init.normal_(recurrent_matrix(model), 0.0, 64**-0.5)
        gaussian.append(_compared(recurrent_matrix(model).detach(), reaching_back(model, LONG)))
    in_100_steps = {f"64 tanh units, gain {g:g}: powers of ten": log10(ratios[LAG]) for g, ratios in orthogonal.items()}
    values = {
        "0.9 over 30 steps": one_unit[0.9][30],
        "0.9 over 40 steps": one_unit[0.9][40],
        "1.1 over 100 steps": one_unit[1.1][100],
        "one unit, error against the power": _error(one_unit),
        "64 linear units, error against the power": _error(linear),
        **in_100_steps,
        "64 tanh units, greatest share of a step's bound": share_of_bound(
            network("simple", run.seed, gain=1.5), run.seed
        ),
        "Gaussian, greatest share of the bound": max(g["of bound"] for g in gaussian),
        "Gaussian, rate over largest singular value": sum(g["rate"] / g["singular"] for g in gaussian) / N_GAUSSIAN,
        "Gaussian, rate over spectral radius": sum(g["rate"] / g["radius"] for g in gaussian) / N_GAUSSIAN,
    }
    series = {
        "one unit": {f"{g:g}": ratios for g, ratios in one_unit.items()},
        "orthogonal": {f"{g:g}": ratios for g, ratios in orthogonal.items()},
        "Gaussian": gaussian[0],
    }
    return Measured(values=values, series=series)


def _error(measured: dict[float, list[float]]) -> float:
    """The greatest over all numbers of steps, relative to the factor to that power."""
    return max(abs(ratio / g**k - 1) for g, ratios in measured.items() for k, ratio in enumerate(ratios))


def _compared(matrix_FF: Tensor, ratios: list[float]) -> dict[str, Any]:
    """What a step multiplies the gradient by in the long run, and what of the matrix it might follow."""
    half = LONG // 2
    singular = float(torch.linalg.matrix_norm(matrix_FF, 2))
    return {
        "ratios": ratios,
        "rate": (ratios[LONG] / ratios[half]) ** (1 / half),
        "singular": singular,
        "radius": float(torch.linalg.eigvals(matrix_FF).abs().max()),
        "of bound": max(ratio / singular**k for k, ratio in enumerate(ratios)),
    }


def share_of_bound(model: Transformer, seed: int) -> float:
    """The greatest, over the steps of a text, of |dL/dh_{t-1}| / |dL/dh_t| over the largest singular value of the
    step's own matrix dh_t/dh_{t-1} = diag(1 - h_t^2) W.
    """
    draw = torch.Generator().manual_seed(seed)
    tokens_BT = torch.randint(model.config.vocab_size, (1, LAG + 2), generator=draw)
    norms_T = gradient_norms(model, tokens_BT)
    hidden_TF = look(model, tokens_BT, "layers.0.mixer.hidden")["layers.0.mixer.hidden"][0, 1 : LAG + 1]
    steps_TFF = (1 - hidden_TF**2)[:, :, None] * recurrent_matrix(model).detach()
    return float((norms_T[:-1] / norms_T[1:] / torch.linalg.matrix_norm(steps_TFF, 2)).max())


def draw(results: Sequence[Measured]) -> Figure:
    figure, (one, many, rates) = figures.panels(3, width=4.8)
    for axes, key, name in ((one, "one unit", "factor {}"), (many, "orthogonal", "gain {}")):
        for factor, style in zip(results[0].series[key], figures.styles(), strict=False):
            runs = [result.series[key][factor] for result in results]
            figures.curve(axes, range(LAG + 1), runs, name.format(factor), style | {"markevery": 10})
    one.plot([30, 40], [0.9**30, 0.9**40], "kx", markersize=9, label=r"$0.9^{30}$ and $0.9^{40}$")
    gaussian = results[0].series["Gaussian"]
    for name, factor, style in zip(
        ("measured", "largest singular value", "spectral radius"),
        (None, gaussian["singular"], gaussian["radius"]),
        figures.styles(),
        strict=False,
    ):
        ratios = gaussian["ratios"] if factor is None else [factor**k for k in range(LONG + 1)]
        label = name if factor is None else f"{name}, {factor:.2f}^k"
        rates.plot(range(LONG + 1), ratios, label=label, markevery=20, **style)
    one.set_title("one linear unit")
    many.set_title("64 tanh units, orthogonal matrix times a gain")
    rates.set_title("64 linear units, Gaussian matrix")
    figures.mark(many, 1e4, "bar: gain 2")
    figures.mark(many, 1e-4, "bar: gain 0.9")
    many.set_xlim(right=1.32 * LAG)
    for axes in (one, many, rates):
        axes.set(yscale="log", xlabel="steps back, k", ylabel="gradient, as a multiple of that at the last step")
    rates.set_ylim(1e-2, 1e14)
    one.legend(loc="upper left")
    many.legend(loc="lower left")
    rates.legend(loc="center right")
    return figure


CLAIM = Claim(
    says="Through a recurrent network the gradient is multiplied at every step, so over k steps it scales like a "
    "factor to the power k: 0.9 leaves 0.04 after 30 steps and 0.015 after 40, 1.1 explodes. With matrices the "
    "largest singular value plays the factor's part: it is the factor where all singular values are equal and the "
    "network is linear, and otherwise the most that a step can multiply by.",
    source=Source(
        statements=(4, 5),
        paper="Bengio 1994, Learning long-term dependencies with gradient descent is difficult, section III; Pascanu "
        "2013, On the difficulty of training recurrent neural networks, section 2.1",
    ),
    how="The norm of dL/dh_t by automatic differentiation in float64, at every step before the loss, over that at the "
    "last step; the mean of 8 random texts. Where all inputs are zero, tanh is the line y = x at the state zero, so "
    "the network is linear: with one unit, and with 64 whose recurrent matrix is orthogonal times 0.9, 1 or 1.1, the "
    "gradient must be the power itself. With inputs, the gradient of 64 tanh units vanishes at a gain of 0.9 and "
    "explodes at 2; at 1 it vanishes too, and at 1.1 it does not explode, for the slope of tanh is below 1 off zero. "
    "That no step multiplies by more than the largest singular value of its own matrix is measured at every step of "
    "one text, at a gain of 1.5. The lesson's sentence is of the bound: what a linear network with a Gaussian matrix "
    "(which is not normal) multiplies by in the long run is its spectral radius, here about half the largest singular "
    "value, and the ratio to each is reported (the mean of four matrices, over steps 100 to 200).",
    marks=(
        Mark(of="0.9 over 30 steps", low=0.0423, high=0.0425, why="0.9^30 = 0.0424."),
        Mark(of="0.9 over 40 steps", low=0.0147, high=0.0149, why="0.9^40 = 0.0148."),
        Mark(of="1.1 over 100 steps", low=1e4, why="1.1^100 = 13,781."),
        Mark(
            of="one unit, error against the power",
            high=1e-5,
            why="First weights are drawn in float32, where 0.9 is off by 3e-8 of itself; 100 steps make that 3e-6.",
        ),
        Mark(
            of="64 linear units, error against the power",
            high=1e-5,
            why="An orthogonal matrix changes no length, so here the one factor is the gain, which is every singular "
            "value.",
        ),
        Mark(
            of="64 tanh units, gain 0.9: powers of ten",
            high=-4,
            why="0.9^100 is 10^-4.6, and tanh only takes from it: three seeds gave 10^-17.",
        ),
        Mark(
            of="64 tanh units, gain 2: powers of ten",
            low=4,
            why="The pilots' three seeds gave 10^4.7 to 10^4.9; a linear network would have 2^100 = 10^30.",
        ),
        Mark(
            of="64 tanh units, greatest share of a step's bound",
            high=1 + 1e-9,
            why="No matrix makes a vector longer than by its largest singular value; 1e-9 is for rounding.",
        ),
        Mark(
            of="Gaussian, greatest share of the bound",
            high=1 + 1e-9,
            why="The same, over any number of steps up to 200. Over none both are 1, so this share is never less than "
            "1.",
        ),
        Mark(
            of="Gaussian, rate over spectral radius",
            low=0.95,
            high=1.05,
            why="Gelfand's formula: the k-th root of the norm of W^k goes to the spectral radius; 5 % is for k = 100.",
        ),
    ),
    measure=measure,
    draw=draw,
    seeds=3,
    cost=Cost(minutes=0.1),
)
