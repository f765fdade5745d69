"""Without the divisor every row of attention is peakier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.checkpoints.load import load
from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.one_head import entropy, longer, pattern, scale_of
from clearhead.claims.ingredients.sentences import SENTENCES
from clearhead.config import AttentionConfig
from clearhead.lens import look
from clearhead.model.transformer import Transformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTHS = (16, 32, 64, 128, 256, 512, 1024)
ROWS, KEYS = 2000, 16
ROUNDING = 1e-12


def measure(run: Run) -> Measured:
    generator = torch.Generator().manual_seed(run.seed)
    risen, fallen = [], []
    largest: dict[str, list[float]] = {"with": [], "without": []}
    for d in WIDTHS:
        q_BTK, k_BSK = (torch.randn(ROWS // KEYS, KEYS, d, generator=generator, dtype=torch.float64) for _ in range(2))
        with_BTS, without_BTS = (pattern(q_BTK, k_BSK, scale=scale) for scale in (scale_of(d), 1.0))
        rises, falls = changes(with_BTS, without_BTS)
        risen.append(rises)
        fallen.append(falls)
        largest["with"].append(float(with_BTS.amax(-1).mean()))
        largest["without"].append(float(without_BTS.amax(-1).mean()))
    model = load("clear-gpt", dtype=torch.float64)
    texts = SENTENCES[: 2 if run.quick else 10]
    seen = [in_model(model, text) for text in texts]
    rises, falls = (sum(column) / len(column) for column in list(zip(*seen, strict=True))[:2])
    before, after = (torch.cat(column) for column in list(zip(*seen, strict=True))[2:])
    return Measured(
        values={
            "share of random rows that rise": min(risen),
            "share of random rows whose entropy falls": min(fallen),
            "share of a model's rows that rise": rises,
            "share of a model's rows whose entropy falls": falls,
            "largest weight in the model, divided": float(before.mean()),
            "largest weight in the model, not divided": float(after.mean()),
            "largest random weight at d = 64, divided": largest["with"][2],
            "largest random weight at d = 64, not divided": largest["without"][2],
        },
        series={"widths": WIDTHS, "largest": largest, "model": [before.tolist()[::7], after.tolist()[::7]]},
    )


def changes(with_BTS: Tensor, without_BTS: Tensor) -> tuple[float, float]:
    """The share of rows whose largest weight rises, and of those whose entropy falls, where the divisor is left out.
    A weight that is 1 to rounding can't rise.
    """
    before, after = with_BTS.amax(-1), without_BTS.amax(-1)
    rises = (after > before) | (before > 1 - ROUNDING)
    sure = entropy(with_BTS) < ROUNDING
    falls = (entropy(without_BTS) < entropy(with_BTS)) | sure
    return float(rises.double().mean()), float(falls.double().mean())


def in_model(model: Transformer, text: str) -> tuple[float, float, Tensor, Tensor]:
    """The same of a model's own rows, a layer at a time: its queries times sqrt(d), which takes the divisor back.
    The first token sees itself alone and is left out.
    """
    before, after = [], []
    for layer, block in enumerate(model.config.stack.blocks):
        assert isinstance(block.mixer.op, AttentionConfig)
        root = 1 / scale_of(block.mixer.op.d_head)
        where = f"layers.{layer}.mixer"
        plain = look(model, text, f"{where}.pattern")
        sharp = look(model, text, f"{where}.pattern", edits={f"{where}.q": longer(root)})
        before.append(plain[f"{where}.pattern"][:, :, 1:])
        after.append(sharp[f"{where}.pattern"][:, :, 1:])
    with_BHTS, without_BHTS = torch.cat(before), torch.cat(after)
    rises, falls = changes(with_BHTS, without_BHTS)
    return rises, falls, with_BHTS.amax(-1).flatten(), without_BHTS.amax(-1).flatten()


def draw(results: Sequence[Measured]) -> Figure:
    figure, (axes, model) = figures.panels(2, width=5.6, height=4.4)
    widths = results[0].series["widths"]
    for (name, says), style in zip(
        (("without", "not divided"), ("with", "divided by sqrt(d)")), figures.styles(), strict=False
    ):
        figures.curve(axes, widths, [result.series["largest"][name] for result in results], says, style)
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("width of a head, d")
    axes.set_ylabel("largest weight of a row (mean)")
    axes.set_title(f"Random queries, {KEYS} keys each")
    axes.legend()
    before, after = results[0].series["model"]
    model.plot(before, after, "o", markersize=2.5, alpha=0.4, color=figures.COLOURS[0])
    model.plot([0, 1], [0, 1], color=figures.INK, linewidth=1.2, linestyle=(0, (6, 3)))
    model.annotate("mark: no row below this line", (0.42, 0.38), rotation=35, fontsize=9)
    model.set_xlabel("largest weight of a row, divided by sqrt(d)")
    model.set_ylabel("largest weight of the row, not divided")
    model.set_title("Rows of clear-gpt, each layer by itself")
    return figure


CLAIM = Claim(
    says="Without the divisor every row of attention is peakier: its largest weight is larger, and its entropy "
    "smaller.",
    source=Source(statements=(26,), paper="Vaswani 2017, section 3.2.1"),
    how="Rows of the library's attention with the scale that a head of that width has, and without one. They are 2,000 "
    "rows of random scores for each of seven widths from 16 to 1,024, in float64; and the rows of a trained model "
    "(clear-gpt, in float64) on ten sentences (two in a quick run), each layer by itself with its queries multiplied "
    "by sqrt(d), which takes the divisor back; the first token, which sees itself alone, is left out. It holds of each "
    "row alone, so the share must be all of them; a row whose weight is 1 to rounding has nowhere to go and counts.",
    marks=tuple(
        Mark(
            of=name,
            low=1.0,
            why="The derivative of the largest weight by the factor on the scores is never negative, and 0 only for "
            "equal scores; that of the entropy is minus the factor times the scores' variance under the weights.",
        )
        for name in (
            "share of random rows that rise",
            "share of random rows whose entropy falls",
            "share of a model's rows that rise",
            "share of a model's rows whose entropy falls",
        )
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.1),
)
