"""One pass over 1,000 tokens gives 1,000 predictions, each as if what comes after were not there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.checkpoints.load import load
from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.small_models import attention, block, decoder, new_model
from clearhead.costs import counts
from clearhead.model.transformer import Transformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTH, VOCABULARY = 1000, 64
EVERY = 20
"""In a quick run every so many prefixes are read by themselves."""
TEXT = (
    "I have the honour to report to the Congress that the relations of the United States with all foreign powers are "
    "peaceful and friendly, and that the revenue of the year has been larger than the expenditure."
)


def measure(run: Run) -> Measured:
    model = new_model(decoder((block(attention(2, 16), 64),) * 2, d_model=32, vocab_size=VOCABULARY), run.seed).double()
    tokens_BT = torch.randint(VOCABULARY, (1, LENGTH), generator=torch.Generator().manual_seed(run.seed))
    lengths = range(EVERY, LENGTH + 1, EVERY) if run.quick else range(1, LENGTH + 1)
    tick = run.progress(len(lengths), "prefixes")
    with torch.no_grad():
        once_TV = model(tokens_BT)[0]
        alone = []
        for length in lengths:
            alone.append(float((model(tokens_BT[:, :length])[0, -1] - once_TV[length - 1]).abs().max()))
            tick()
    size = float(once_TV.abs().max())
    shipped = load("clear-gpt")
    per_prefix = sum(counts(model).flops(1, length, last=1).total for length in range(1, LENGTH + 1))
    return Measured(
        values={
            "predictions of one pass": float(once_TV.shape[0]),
            "one pass against prefixes by themselves, float64": max(alone) / size,
            "earlier predictions when a later token changes": change_ahead(model, tokens_BT),
            "clear-gpt, one pass against prefixes": against_prefixes(shipped),
            "operations, all prefixes to one pass": per_prefix / counts(model).flops(1, LENGTH).total,
        },
        series={"lengths": list(lengths), "alone": [one / size for one in alone]},
    )


def change_ahead(model: Transformer, tokens_BT: Tensor) -> float:
    """The largest change of any prediction before a token, over tokens at nine places that are changed in turn."""
    far = 0.0
    with torch.no_grad():
        before_TV = model(tokens_BT)[0]
        for place in range(LENGTH // 10, LENGTH, LENGTH // 10):
            other_BT = tokens_BT.clone()
            other_BT[0, place] = (other_BT[0, place] + 1) % VOCABULARY
            after_TV = model(other_BT)[0]
            far = max(far, float((after_TV - before_TV)[:place].abs().max()))
    return far


def against_prefixes(model: Transformer) -> float:
    """The same of a trained model in float32, for every prefix of a sentence: as a share of the largest score."""
    tokens_BT = torch.tensor([model.tokenizer.encode(TEXT)])
    with torch.no_grad():
        once_TV = model(tokens_BT)[0]
        alone_TV = torch.stack([model(tokens_BT[:, : i + 1])[0, -1] for i in range(tokens_BT.shape[1])])
    return float((alone_TV - once_TV).abs().max() / once_TV.abs().max())


def draw(results: Sequence[Measured]) -> Figure:
    figure, (axes,) = figures.panels(width=7.0, height=4.0)
    # Where the two agree to the last bit there is nothing to show on a logarithmic axis, so those stand at the bottom.
    floor = 1e-18
    lengths, alone = results[0].series["lengths"], results[0].series["alone"]
    style = next(figures.styles()) | {"linestyle": "", "markersize": 3}
    axes.plot(lengths, [max(one, floor) for one in alone], **style)
    axes.set(yscale="log", ylim=(floor / 3, 1e-8), xlabel="tokens of the prefix")
    axes.set_ylabel("difference from the one pass\n(share of the largest score; 1e-18 stands for none)")
    figures.mark(axes, 1e-10, "mark: float64")
    return figure


CLAIM = Claim(
    says="One pass over 1,000 tokens gives 1,000 predictions, and each uses only what came before it: it is what the "
    "model says when it is given that prefix alone. So a decoder learns from every token of a text at the cost of "
    "reading it once.",
    source=Source(statements=(53,), paper="Vaswani 2017, section 3.2.3; Radford 2018, GPT, section 3.1"),
    how="A random two-layer decoder reads 1,000 tokens at once in float64, and then every prefix by itself (in a quick "
    "run every twentieth); the predictions are compared. Then tokens at nine places are changed in turn, and "
    "predictions before them looked at. The same for every prefix of a sentence in clear-gpt, in float32. How many "
    "operations are saved is counted by `cost`.",
    marks=(
        Mark(of="predictions of one pass", why="One a token.", low=LENGTH, high=LENGTH),
        Mark(
            of="one pass against prefixes by themselves, float64",
            why="Sums are taken in another order, so rounding of 1e-16 may differ; what comes after would show at "
            "1e-2.",
            high=1e-10,
        ),
        Mark(
            of="earlier predictions when a later token changes",
            why="A hidden token's weight is exactly zero, so nothing should change at all; 1e-12 is far below what a "
            "leak would show.",
            high=1e-12,
        ),
        Mark(of="clear-gpt, one pass against prefixes", why="Rounding of float32 through four layers.", high=1e-4),
        Mark(
            of="operations, all prefixes to one pass",
            why="Its 1,000 prefixes have 500 tokens on average, and attention's own products a third of the square: so "
            "between 333 and 500, of which a hundred is well short.",
            low=100,
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.1),
)
