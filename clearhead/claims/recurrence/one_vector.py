"""One vector is a bottleneck: a translator whose source is one vector falls with the length of the sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.translators import (
    Kind,
    accuracy,
    config_of,
    ends,
    lengths_of,
    mean_of,
    task_of,
    translator,
)
from clearhead.costs import counts

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def measure(run: Run) -> Measured:
    task = task_of(run)
    lengths, (short, long) = lengths_of(task), ends(task)
    values: dict[str, float] = {}
    series: dict[str, list[float]] = {"words": list(lengths)}
    kinds: dict[Kind, str] = {"enc": "RNNenc", "search": "RNNsearch"}
    for kind, name in kinds.items():
        found = accuracy(translator(run, kind), task, lengths)
        values[f"{name}, short"] = mean_of(found, short)
        values[f"{name}, long"] = mean_of(found, long)
        values[f"{name} falls by"] = 100 * (mean_of(found, short) - mean_of(found, long))
        series[name] = list(found.values())
    enc, search = (counts(config_of(kind, task)).parameters.total for kind in kinds)
    values["parameters of RNNenc / RNNsearch"] = enc / search
    return Measured(values=values, series=series)


def draw(results: Sequence[Measured]) -> Figure:
    figure, (axes,) = figures.panels()
    words = results[0].series["words"]
    for name, style in zip(("RNNsearch", "RNNenc"), figures.styles(), strict=False):
        figures.curve(axes, words, [found.series[name] for found in results], name, style)
    top = sum(found.values["RNNenc, short"] for found in results) / len(results)  # type: ignore[misc]
    figures.mark(axes, top - FALL / 100, f"{FALL} points lower (full run)")
    axes.set(xlabel="length of the sentence (words)", ylabel="words guessed right (share)", ylim=(0, 1.04))
    axes.legend(loc="lower left")
    return figure


FALL = 30
CLAIM = Claim(
    says="A recurrent network that has read a sentence keeps one vector of it, however long it was. A translator that "
    "is given nothing else loses more of a sentence the longer it is.",
    source=Source(
        statements=(3,), paper="Cho 2014, RNN Encoder-Decoder, section 2.2; Bahdanau 2014, sections 1 and 5.1, figure 2"
    ),
    how="Two translators with GRUs and as many parameters learn a made-up language, in which adjectives and nouns "
    "change places, a verb becomes two words, and every word is drawn by itself, so that only the source tells it. "
    "Both are trained on the same 1,500 batches of 64 sentences of one length, at a rate of 4e-3 (300 of 32 at 1e-2 "
    "when quick): four batches in five short (3 to 12 words; 3 to 6 when quick), one in five long (13 to 24; 7 to 12 "
    "when quick). RNNenc is given the encoder's last vector at its start and at every step; RNNsearch may look back, "
    "and shows that the task itself is no harder on long sentences. Told is the share of words guessed right, each "
    "after the right words before it, on 64 new sentences of each length; a verb's second word and the end, which can "
    "be guessed without the source, are left out. Short are 4 to 6 words, long 22 to 24 (10 to 12 when quick).",
    marks=(
        Mark(
            of="RNNenc falls by",
            low=FALL,
            unit="points",
            at="full",
            why="Twice as far as RNNsearch may fall. A seed gave 48 points: of 24 words, a vector of 60 numbers had "
            "room for half.",
        ),
        Mark(
            of="RNNenc falls by",
            low=20.0,
            unit="points",
            at="quick",
            why="The longest sentences of a quick run have 12 words of a smaller language; a seed gave 35 points.",
        ),
        Mark(
            of="RNNsearch falls by",
            high=15.0,
            unit="points",
            why="The same sentences, of which one network keeps a vector a word: if it fell as far, the sentences "
            "would be to blame and not the one vector.",
        ),
        Mark(
            of="parameters of RNNenc / RNNsearch",
            low=0.99,
            high=1.01,
            why="Neither may be better because it is larger.",
        ),
    ),
    measure=measure,
    draw=draw,
    seeds=3,
    cost=Cost(minutes=3.0),
)
