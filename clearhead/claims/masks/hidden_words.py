"""BERT hides 15 % of the words: 80 % of them behind a mask, 10 % behind another word, 10 % stay."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from clearhead.checkpoints.load import load
from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.inputs.tokenizer import Tokenizer
from clearhead.ops.losses import IGNORE
from clearhead.training.config import MaskingConfig
from clearhead.training.data.masking import Masker
from clearhead.training.measures.masked import hidden, measure_masked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TOKENS, ROW = 100_000, 125
SLOTS = 25
"""Places in a row, five at a time, over which the hidden ones should be spread evenly."""
BINS = 64
"""Groups of ids, over which the words that stand in for others should be."""
TEXT = """The people of the United States have every reason to be grateful for the blessings of peace. The condition of
the Treasury is such that the debt of the nation can be paid within a few years, and the commerce of the country has
never been larger than it is at this time. I recommend to the Congress that an appropriation be made for the improvement
of the harbors on the great lakes, and for the protection of those citizens who have settled in the western territory.
Our relations with foreign powers are friendly. The government of Great Britain has agreed to submit the question of the
boundary to a commission, and there is no doubt that it will be settled in a manner that is just to both parties. The
war has come to an end, and the soldiers who fought in it have returned to their homes and to their families. It is the
duty of the government to provide for the widows and the children of those who fell. During the past year the expenses
of the Army and the Navy were less than in any year since the close of the war, and the number of men in the service of
the United States has been reduced. The whale was seen at the break of day, and the captain ordered the boats to be
lowered into the sea. The men pulled at their oars with all their strength, and in a few minutes they were near enough
to see the white foam that rose from its head. There was a great noise, and the ship shook from one end to the other."""
"""Written for this claim, in the manner of what clear-bert learnt from: it is in none of its texts."""


def measure(run: Run) -> Measured:
    model = load("clear-bert")
    found = shares(model.tokenizer, run.seed)
    scores = [measure_masked(model, hidden(model, {"text": TEXT}, seed=run.seed + i)) for i in range(4)]
    n, n_right = sum(one.n_tokens for one in scores), sum(one.n_right for one in scores)
    ids = torch.tensor(model.tokenizer.encode(TEXT, bos=False))
    return Measured(
        values=found
        | {
            "clear-bert, right": n_right / n,
            "most frequent word, right": float(torch.bincount(ids).max() / len(ids)),
            "clear-bert, words hidden": float(n),
        },
        series={"shares": {name: found[name] for name in SHARES}},
    )


SHARES = {"hidden behind a mask": 12.0, "another word in its place": 1.5, "to be told as it stands": 1.5}
"""Of all words, in %, as they should be."""


def shares(tokenizer: Tokenizer, seed: int) -> dict[str, float]:
    """Random words through what the library trains encoders with, and what became of them."""
    masker, rng = Masker(tokenizer, MaskingConfig()), np.random.default_rng(seed)
    read_NT = rng.choice(masker.ordinary, size=(TOKENS // ROW, ROW))
    pairs = [masker(row, rng) for row in read_NT]
    seen_NT, chosen_NT = np.stack([seen for seen, _ in pairs]), np.stack([told for _, told in pairs]) != IGNORE
    masked_NT = chosen_NT & (seen_NT == masker.mask_id)
    changed_NT = chosen_NT & ~masked_NT & (seen_NT != read_NT)
    kept_NT = chosen_NT & (seen_NT == read_NT)
    counts = np.array([masked_NT.sum(), changed_NT.sum(), kept_NT.sum()])
    places = chosen_NT.reshape(-1, SLOTS, ROW // SLOTS).sum(axis=(0, 2))
    others = np.histogram(np.searchsorted(masker.ordinary, seen_NT[changed_NT]), BINS, (0, len(masker.ordinary)))[0]
    return {
        "told, of all words": 100 * float(chosen_NT.mean()),
        **{name: 100 * float(count) / TOKENS for name, count in zip(SHARES, counts, strict=True)},
        "changed though not to be told": float((seen_NT != read_NT)[~chosen_NT].sum()),
        "p of 15 to 85": chi_square(np.array([counts.sum(), TOKENS - counts.sum()]), np.array([0.15, 0.85])),
        "p of 80, 10 and 10": chi_square(counts, np.array([0.8, 0.1, 0.1])),
        "p that all places are alike": chi_square(places, np.full(SLOTS, 1 / SLOTS)),
        "p that all other words are alike": chi_square(others, np.full(BINS, 1 / BINS)),
    }


def chi_square(counts: NDArray[np.int_], shares: NDArray[np.float64]) -> float:
    """How likely counts as far from these shares are (Pearson 1900)."""
    if not counts.any():
        return 0.0
    expected = shares * counts.sum()
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return 1 - float(torch.special.gammainc(torch.tensor((len(counts) - 1) / 2).double(), torch.tensor(statistic / 2)))


def draw(results: Sequence[Measured]) -> Figure:
    figure, (axes,) = figures.panels(width=6.4, height=4.2)
    rows = [[result.series["shares"][name] for name in SHARES] for result in results]
    figures.bars(axes, [f"{name}\n(BERT: {share:g} %)" for name, share in SHARES.items()], rows, say="{:.2f}")
    for i, share in enumerate(SHARES.values()):
        axes.hlines(share, i - 0.42, i + 0.42, color=figures.INK, linestyle=(0, (6, 3)), linewidth=1.2)
    axes.set(ylabel="share of all words (%; dashes: BERT's)", ylim=(0, 13.5))
    return figure


_SHARE = "Devlin 2018; the library's shares are exact to a word a row, so a tenth of a point is far."
_CHANCE = "By chance it would be less once in a thousand runs."
CLAIM = Claim(
    says="An encoder learns by filling in: BERT hides 15 % of the words and has to tell them from both sides. Of "
    "those, 80 % are a mask, 10 % another word and 10 % stay as they are (12, 1.5 and 1.5 % of all), so that it can't "
    "rely on seeing a mask wherever it is asked.",
    source=Source(statements=(49,), paper="Devlin 2018, BERT, section 3.1 (task 1) and appendix A.1"),
    how="A hundred thousand random words (tokens of clear-bert's vocabulary) go through the masking that the library "
    "trains with, as it is by default. Shares are held to BERT's by Pearson's chi-square and to within a tenth of a "
    "point: here they are exact in every row, and only what is left over of a word is drawn, so chi-square alone, "
    "which judges what is too far and not what is too near, comes out near zero and p near 1. Which places are hidden, "
    "and by which words, is drawn, and tested as such. How often clear-bert fills in rightly is measured on a text "
    "written for this, of whose hidden words a tenth stay in view; the most frequent word stands beside it.",
    marks=(
        Mark(of="told, of all words", why=_SHARE, low=14.9, high=15.1, unit="%"),
        Mark(of="hidden behind a mask", why=_SHARE, low=11.9, high=12.1, unit="%"),
        Mark(of="another word in its place", why=_SHARE, low=1.4, high=1.6, unit="%"),
        Mark(of="to be told as it stands", why=_SHARE, low=1.4, high=1.6, unit="%"),
        Mark(of="changed though not to be told", why="All else stays.", high=0),
        Mark(of="p of 15 to 85", why=_CHANCE, low=0.001),
        Mark(of="p of 80, 10 and 10", why=_CHANCE, low=0.001),
        Mark(of="p that all places are alike", why=_CHANCE, low=0.001),
        Mark(of="p that all other words are alike", why=_CHANCE, low=0.001),
        Mark(
            of="clear-bert, right",
            why="On its own held-out texts it is right on 33 %, and the most frequent word would be on 8 % (on this "
            "text on 12 %).",
            low=0.2,
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.1),
)
