"""Pre-LN trains without a warm-up of the learning rate, where Post-LN fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients import texts
from clearhead.claims.ingredients.fitting import fit, next_token_loss
from clearhead.claims.ingredients.norm_placement import Placement, decoder_with_norms
from clearhead.claims.ingredients.small_models import new_model
from clearhead.model.transformer import Transformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

N_LAYERS, D_MODEL, LENGTH, ROWS, RATE = 12, 128, 32, 16, 3e-3
WARM_UP = 100
SMOOTH = 10
"""So many steps are averaged, for the figure and, at the end, for the loss that is judged."""


class Arm(NamedTuple):
    """One way to train."""

    placement: Placement
    warm_up: int


ARMS = {
    "Post-LN, no warm-up": Arm("post", 0),
    "Pre-LN, no warm-up": Arm("pre", 0),
    "Post-LN, warm-up": Arm("post", WARM_UP),
}


def measure(run: Run) -> Measured:
    # Within a quick run nobody gets through a warm-up, so it looks at the two that have none.
    arms = {name: arm for name, arm in ARMS.items() if not (run.quick and arm.warm_up)}
    n_steps = 40 if run.quick else 150
    tick = run.progress(len(arms) * n_steps, "steps")
    text, _ = texts.python_source()
    curves = {}
    for name, arm in arms.items():
        model = first_model(arm.placement, run.seed)
        rows = partial(texts.rows, text, ROWS, LENGTH, torch.Generator().manual_seed(run.seed))
        loss = partial(loss_of, model, rows)
        curves[name] = fit(model, loss, n_steps, lr=RATE, warmup=arm.warm_up, betas=(0.9, 0.999), clip=None, tick=tick)
    losses = {name: _mean(curve[-SMOOTH:]) for name, curve in curves.items()}
    return Measured(values=losses, series={"losses": curves, "unigram": unigram_entropy()})


def loss_of(model: Transformer, rows: Callable[[], Tensor], step: int) -> Tensor:
    """On new rows of the text."""
    rows_BT = rows()
    return next_token_loss(model(rows_BT), rows_BT)


def first_model(placement: Placement, seed: int) -> Transformer:
    """With the first weights that torch gives to layers unasked: uniform, a third of the variance that keeps a vector's
    length; and vectors of tokens of length sqrt(d).
    """
    model = new_model(decoder_with_norms(placement, N_LAYERS, d_model=D_MODEL, vocab_size=texts.SYMBOLS), seed)
    for module in model.modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            module.reset_parameters()
    assert model.head is not None and model.head.weight is not None
    nn.init.uniform_(model.head.weight, -(D_MODEL**-0.5), D_MODEL**-0.5)
    return model


def unigram_entropy() -> float:
    """What a model pays that has learnt how frequent each character is, and nothing else, in nats."""
    counts_V = torch.bincount(texts.python_source()[0], minlength=texts.SYMBOLS).double()
    share_V = counts_V / counts_V.sum()
    return float(-torch.special.xlogy(share_V, share_V).sum())


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)


def draw(results: Sequence[Measured]) -> Figure:
    figure, (axes,) = figures.panels(width=7.0, height=4.4)
    for name, style in zip(results[0].series["losses"], figures.styles(), strict=False):
        runs = [result.series["losses"][name] for result in results]
        smooth = [
            [_mean(curve[max(0, i - SMOOTH + 1) : i + 1]) for i in range(SMOOTH - 1, len(curve), SMOOTH)]
            for curve in runs
        ]
        steps = [i + 1 for i in range(SMOOTH - 1, len(runs[0]), SMOOTH)]
        figures.curve(axes, steps, smooth, name, style)
    unigram = results[0].series["unigram"]
    axes.axhline(
        unigram, color=figures.INK, linewidth=1.2, linestyle=(0, (6, 3)), label="knows only how frequent characters are"
    )
    axes.set(xlabel="step", ylabel=f"loss (nats a character, mean of {SMOOTH} steps)")
    axes.set_ylim(top=min(axes.get_ylim()[1], 4.5))
    axes.legend()
    return figure


CLAIM = Claim(
    says="With norms before the sub-layers (Pre-LN) a deep model trains from the first step at a rate at which one "
    "with norms after the additions (Post-LN, as in 2017) does not get beyond how frequent each character is in as "
    "many steps. With a warm-up of the learning rate that one trains too.",
    source=Source(
        statements=(44,), paper="Xiong 2020, On Layer Normalization in the Transformer Architecture, figures 2 to 4"
    ),
    how="Decoders of 12 layers, 128 wide, learn characters of Python's standard library with Adam at a rate of 3e-3, "
    "150 steps of 16 rows of 32, from torch's default first weights; the loss is the mean of the last ten steps. The "
    "claim is of this rate, which Pre-LN bears: at 1e-3 or less Post-LN trains without a warm-up too, and not worse. A "
    "quick run stops after 40 steps, before a warm-up would be over, and leaves that run out.",
    marks=(
        Mark(
            of="Post-LN, no warm-up",
            why="It is stuck where a model is that knows only how frequent characters are (3.31 nats): three seeds of "
            "a pilot gave 3.26 to 3.33.",
            low=3.0,
            unit="nats",
        ),
        Mark(
            of="Pre-LN, no warm-up",
            why="Well below that, with room for the seed: pilots gave 2.2 to 2.6.",
            high=2.7,
            unit="nats",
            at="full",
        ),
        Mark(
            of="Post-LN, warm-up",
            why="The same model with a warm-up of 100 steps gave 2.3 to 2.4 in pilots.",
            high=2.6,
            unit="nats",
            at="full",
        ),
        Mark(
            of="Pre-LN, no warm-up",
            why="After 40 steps it is on its way: 2.84 in a pilot, when Post-LN was at 3.32.",
            high=3.0,
            unit="nats",
            at="quick",
        ),
    ),
    measure=measure,
    draw=draw,
    seeds=3,
    cost=Cost(minutes=2.2),
)
