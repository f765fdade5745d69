"""Many heads can be cut off at little cost."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.checkpoints.load import load
from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.lens.pruning.examples import examples_of
from clearhead.lens.pruning.importance import By
from clearhead.lens.pruning.prune import pruning_curve
from clearhead.model.transformer import Transformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARES = (0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75)
RANDOM_ORDERS = 3


RANKED_ON, CHECKED_ON, COUNTED_IN = "nn/functional.py", "optim/lr_scheduler.py", "nn/modules/*.py"
"""Files of torch, which clear-gpt never read: for ranking heads, for measuring the loss, for counting tokens."""


def text_of(files: str) -> str:
    return "".join(path.read_text() for path in sorted(Path(torch.__file__).parent.glob(files)))


def unigram_loss(model: Transformer, max_tokens: int) -> float:
    """Nats a token of the text that is checked on, by how often each occurs in other files of that kind."""
    examples = examples_of(model, text_of(CHECKED_ON), max_tokens)
    targets = torch.cat([batch.targets.flatten() for batch in examples])
    counted = torch.tensor(model.tokenizer.encode(text_of(COUNTED_IN), bos=False))
    count_V = counted.bincount(minlength=model.config.vocab_size).double() + 1
    return float(-(count_V / count_V.sum()).log()[targets].mean())


def measure(run: Run) -> Measured:
    model = load("clear-gpt")
    ranked_on, checked_on = text_of(RANKED_ON), text_of(CHECKED_ON)
    max_tokens = 1024 if run.quick else 4096
    shares = SHARES[::2] if run.quick else SHARES
    orders: tuple[By, ...] = ("gradient",) if run.quick else ("gradient", "ablation")
    n_random = 1 if run.quick else RANDOM_ORDERS
    tick = run.progress(1 + n_random, "orders")

    def curves(by: Sequence[By], seed: int) -> Tensor:
        found = pruning_curve(
            model, text=ranked_on, held_out=checked_on, orders=by, fractions=shares, seed=seed, max_tokens=max_tokens
        )
        tick()
        return found.values

    ranked_OF = curves(orders, run.seed)
    random_F = torch.stack([curves(("random",), run.seed + i)[0] for i in range(n_random)]).mean(0)
    unigram = unigram_loss(model, max_tokens)
    whole = float(ranked_OF[0, 0])
    cost = {
        by: ((losses_F - whole) / (unigram - whole)).tolist()
        for by, losses_F in zip((*orders, "random"), (*ranked_OF, random_F), strict=True)
    }
    quarter, half, most = (shares.index(share) for share in (0.25, 0.5, 0.75))
    return Measured(
        values={
            **{f"cost of a quarter of the heads, by {by}": costs[quarter] for by, costs in cost.items()},
            **{f"cost of half of the heads, by {by}": costs[half] for by, costs in cost.items()},
            **{f"cost of three quarters, by {by}": costs[most] for by, costs in cost.items()},
            "random order's cost of a quarter less that by gradient": cost["random"][quarter]
            - cost["gradient"][quarter],
            "loss of the whole model": whole,
            "loss of the unigrams": unigram,
        },
        series={"shares": list(shares), "cost": cost},
    )


def draw(results: Sequence[Measured]) -> Figure:
    series = results[0].series
    figure, (axes,) = figures.panels(width=7.0)
    percent = [100 * share for share in series["shares"]]
    for (by, costs), style in zip(series["cost"].items(), figures.styles(), strict=False):
        name = "at random" if by == "random" else f"ranked by {by}"
        axes.plot(percent, [100 * cost for cost in costs], label=name, **style)
    for share, cost in ((25, 12), (50, 30)):
        axes.plot(share, cost, "_", color=figures.INK, markersize=26, markeredgewidth=2)
        axes.annotate(
            f"mark: {cost} %", (share, cost), ha="right", xytext=(0, 5), textcoords="offset points", fontsize=9
        )
    axes.set_xlabel("heads cut off, % of 16")
    axes.set_ylabel("cost, % of the way from the model to unigrams")
    axes.legend(loc="upper left")
    return figure


CLAIM = Claim(
    says="Heads are redundant: a large share of them can be cut off at little cost.",
    source=Source(
        statements=(32,), paper="Michel 2019, 'Are Sixteen Heads Really Better than One?', figure 3; Voita 2019"
    ),
    how="The 16 heads of the shipped clear-gpt are ranked on one text (torch's functional.py, which it never read) by "
    "the gradient of a mask on each head, by the loss without each head alone, and at random (the mean of three "
    "orders; one in a quick run). On another text (lr_scheduler.py) the loss is measured with more and more of them "
    "gone, the least important first; a layer keeps at least one. The cost is a share of the way from the model's loss "
    "to that of unigrams, counted in other files of torch (counted in the short text itself they would be too good, "
    "and every share half as large again). Of either text the first 4,096 tokens are read. A quick run leaves out the "
    "ranking by ablation and takes 1,024. Michel's translator and BERT lost nothing to speak of with 20 and 40 % of "
    "their heads; of so small a model the marks ask for less, and heads cut at random keep within them too (11 and 25 "
    "%).",
    marks=(
        Mark(
            of="cost of a quarter of the heads, by gradient",
            high=0.12,
            why="A pilot on another model, with 24 heads, lost 5.6 % of that way with the lowest quarter; twice that "
            "is still little.",
        ),
        Mark(
            of="cost of half of the heads, by gradient",
            high=0.30,
            why="The same pilot lost 19.9 % with the lower half; half as much again.",
        ),
        Mark(
            of="cost of three quarters, by gradient",
            low=0.2,
            why="A control: heads are cut off indeed, and not all of them are redundant.",
        ),
        Mark(of="cost of a quarter of the heads, by ablation", high=0.12, why="As by gradient.", at="full"),
        Mark(of="cost of half of the heads, by ablation", high=0.30, why="As by gradient.", at="full"),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.4),
)
