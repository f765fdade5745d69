"""Cross-attention reads the source: without it, or with another source, there is no answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.checkpoints.load import load
from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.generation import generate
from clearhead.generation.source import beginning
from clearhead.lens import look, zero
from clearhead.model.transformer import Transformer
from clearhead.training.corpora.number_words import ENGLISH_UNITS, GERMAN_UNITS
from clearhead.training.measures.alignment import Alignment, align

if TYPE_CHECKING:
    from matplotlib.figure import Figure

ENGLISH_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
GERMAN_TENS = "zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig".split()
PICTURED = "de: forty-seven"


@dataclass(frozen=True)
class Number:
    """One of two digits, which German says from the back: "forty-seven" is "siebenundvierzig"."""

    source: str
    target: str
    unit: tuple[str, str]
    """In the target and in the source, as pieces are written."""
    tens: tuple[str, str]


def numbers() -> list[Number]:
    """All from 21 to 99 but whole tens."""
    return [
        Number(f"de: {tens}-{unit}", f"{einer}und{zehner}", (einer, f"-{unit}"), (zehner, tens))
        for tens, zehner in zip(ENGLISH_TENS, GERMAN_TENS, strict=True)
        for unit, einer in zip(ENGLISH_UNITS, GERMAN_UNITS, strict=True)
    ]


def measure(run: Run) -> Measured:
    model = load("clear-translate")
    chosen = numbers()[run.seed % 3 :: 3] if run.quick else numbers()
    tick = run.progress(len(chosen), "numbers")
    right = dict.fromkeys(("its own source", "written alone", "no source", "another source"), 0)
    crossing = agreed = 0
    for number, other in zip(chosen, [*chosen[4:], *chosen[:4]], strict=True):
        inputs, target = inputs_of(model, number)
        right["its own source"] += told(model, inputs, target)
        right["no source"] += told(model, inputs, target, zeroed=True)
        right["another source"] += told(model, {**inputs, "source": inputs_of(model, other)[0]["source"]}, target)
        right["written alone"] += generate(model, number.source, max_new_tokens=8).text == number.target
        seen = align(model, number.source, number.target)
        looks = [seen.found(target) == source for target, source in (number.unit, number.tens)]
        agreed, crossing = agreed + sum(looks), crossing + all(looks)
        tick()
    n = len(chosen)
    inputs, _ = inputs_of(model, next(one for one in numbers() if one.source == PICTURED))
    pictured = align(model, PICTURED, "siebenundvierzig")
    return Measured(
        values={f"right, {name}": count / n for name, count in right.items()}
        | {
            "units and tens looked at where they are said": agreed / (2 * n),
            "both, so that the two ways cross": crossing / n,
            "encoder, first place when the last word changes": first_when_last_changes(model, inputs),
            "decoder, earlier places when the last word changes": earlier_when_last_changes(model, inputs),
            "a token at a time against one pass": one_by_one(model, inputs),
            "numbers": float(n),
        },
        series={"right": {name: count / n for name, count in right.items()}, "alignment": _shown(pictured)},
    )


def inputs_of(model: Transformer, number: Number) -> tuple[dict[str, Tensor], Tensor]:
    """What the model is given, with the right answer to read, and what it should say at each place of it."""
    written = model.tokenizer.encode(number.target, bos=False)
    start = beginning(model, {}, None)
    source_BS = torch.tensor([model.tokenizer.encode(number.source)])
    return {"tokens": torch.tensor([[*start, *written]])[:, :-1], "source": source_BS}, torch.tensor(written)


def told(model: Transformer, inputs: dict[str, Tensor], target: Tensor, zeroed: bool = False) -> bool:
    """Whether every word of the answer is the likeliest where the right ones before it are read."""
    edits = {"layers.*.cross.out": zero} if zeroed else {}
    logits_TV = look(model, inputs, "logits", edits=edits)["logits"][0]
    return bool((logits_TV[-len(target) :].argmax(dim=-1) == target).all())


def first_when_last_changes(model: Transformer, inputs: dict[str, Tensor]) -> float:
    """How far what the encoder makes of the first word moves with the last word before the end."""
    other_BS = inputs["source"].clone()
    other_BS[0, -2] = model.tokenizer.encode("de: twenty-two")[-2]
    with torch.no_grad():
        return float((model.encode(other_BS)[0, 0] - model.encode(inputs["source"])[0, 0]).abs().max())


def earlier_when_last_changes(model: Transformer, inputs: dict[str, Tensor]) -> float:
    """How far any score before the last word of the target moves with it."""
    other_BT = inputs["tokens"].clone()
    other_BT[0, -1] = inputs["tokens"][0, 0]
    with torch.no_grad():
        before_TV, after_TV = (model(tokens, source=inputs["source"])[0] for tokens in (inputs["tokens"], other_BT))
    return float((after_TV - before_TV)[:-1].abs().max())


def one_by_one(model: Transformer, inputs: dict[str, Tensor]) -> float:
    """How far scores are from those of one pass where each token is fed by itself, and the source with the first."""
    state, rows = model.new_state(), []
    with torch.no_grad():
        for t, token in enumerate(inputs["tokens"][0]):
            source = {"source": inputs["source"]} if t == 0 else {}
            rows.append(model(token.view(1, 1), **source, state=state)[0])
        whole_TV = model(inputs["tokens"], source=inputs["source"])[0]
    return float((torch.cat(rows) - whole_TV).abs().max() / whole_TV.abs().max())


def _shown(seen: Alignment) -> dict[str, object]:
    return {"source": seen.source, "target": seen.target, "mean": seen.mean_TS.tolist()}


def draw(results: Sequence[Measured]) -> Figure:
    figure, (bars, alignment) = figures.panels(2, width=5.6, height=4.2)
    right = [result.series["right"] for result in results]
    figures.bars(
        bars, [name.replace(" ", "\n", 1) for name in right[0]], [list(one.values()) for one in right], say="{:.2f}"
    )
    bars.set(ylabel="share of numbers that are right", ylim=(0, 1.12), xlabel="how the number is asked for")
    figures.mark(bars, 0.9, "mark with its source")
    figures.mark(bars, 0.1, "mark without")
    seen = results[0].series["alignment"]
    figures.heat(alignment, seen["mean"], row_names=seen["target"], column_names=seen["source"])
    alignment.set(
        xlabel="source", ylabel="target, as it is written", title="Where cross-attention looks (mean of all heads)"
    )
    return figure


CLAIM = Claim(
    says="In an encoder-decoder the encoder sees the source both ways, the decoder writes causally, each token fed "
    "back, and cross-attention is the way between them: its queries come from what is written, its keys and values "
    "from the source. Without it, or with another source, there is no answer, and it looks at the word that is being "
    "translated even where the order is another.",
    source=Source(statements=(51, 52), paper="Vaswani 2017, section 3.2.3; Bahdanau 2014, section 5.2.1 and figure 3"),
    how="clear-translate says the numbers from 21 to 99 in German, whose units come before tens (24 of them in a quick "
    "run, 72 in a full one; it has learnt from most of them). A number counts where every word is the likeliest: with "
    "its own source, with cross-attention's corrections set to zero, and with another number's source; and where it "
    "writes by itself. Then which word of the source each word looks at most, as a mean over all heads; what a change "
    "of the last word does in the encoder and in the decoder; and whether feeding tokens back one at a time gives the "
    "scores of one pass.",
    marks=(
        Mark(of="right, its own source", why="It is a trained model: on held-out numbers it is right on all.", low=0.9),
        Mark(of="right, written alone", why="The same, feeding back what it wrote.", low=0.9),
        Mark(
            of="right, no source", why="One of 72 by guessing; a tenth leaves room for a lucky unit or ten.", high=0.1
        ),
        Mark(of="right, another source", why="It should say the other number, and so not this one.", high=0.1),
        Mark(
            of="units and tens looked at where they are said",
            why="Of four tokens of the source one is right; nine of ten is what RNNsearch's alignment is asked for "
            "too.",
            low=0.9,
        ),
        Mark(of="encoder, first place when the last word changes", why="It sees both ways.", low=1e-3),
        Mark(of="decoder, earlier places when the last word changes", why="It sees what came before alone.", high=0.0),
        Mark(of="a token at a time against one pass", why="Rounding of float32.", high=1e-5),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.2),
)
