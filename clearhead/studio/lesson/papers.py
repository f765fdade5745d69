"""The fifteen papers behind the lesson, and what this library measures of each."""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

from clearhead.claims.catalogue import find, names
from clearhead.studio.claims import kept_result
from clearhead.studio.context import Studio
from clearhead.studio.operations import Answer, operation


class Paper(NamedTuple):
    """A paper, what it showed in a sentence of ours, and how claims name it as their source."""

    title: str
    authors: str
    year: int
    link: str
    says: str
    named: str


ARXIV = "https://arxiv.org/abs/"
PAPERS = (
    Paper(
        "Learning long-term dependencies with gradient descent is difficult",
        "Yoshua Bengio, Patrice Simard, Paolo Frasconi",
        1994,
        "https://doi.org/10.1109/72.279181",
        "What lets a recurrent network hold on for long also takes away the gradient that would teach it to.",
        "Bengio 1994",
    ),
    Paper(
        "Long short-term memory",
        "Sepp Hochreiter, Jürgen Schmidhuber",
        1997,
        "https://doi.org/10.1162/neco.1997.9.8.1735",
        "A cell that adds instead of multiplying, behind gates, carries an error over a thousand steps.",
        "Hochreiter 1997",
    ),
    Paper(
        "Neural machine translation by jointly learning to align and translate",
        "Dzmitry Bahdanau, Kyunghyun Cho, Yoshua Bengio",
        2014,
        f"{ARXIV}1409.0473",
        "A translator that weighs every source word anew at each step no longer fails on long sentences.",
        "Bahdanau 2014",
    ),
    Paper(
        "Attention is all you need",
        "Ashish Vaswani, Noam Shazeer, Niki Parmar, Jakob Uszkoreit and others",
        2017,
        f"{ARXIV}1706.03762",
        "Without any recurrence, attention and feed-forward layers alone translate better, and train in hours.",
        "Vaswani 2017",
    ),
    Paper(
        "RoFormer: enhanced transformer with rotary position embedding",
        "Jianlin Su, Yu Lu, Shengfeng Pan and others",
        2021,
        f"{ARXIV}2104.09864",
        "Turn queries and keys by an angle that grows with the position, and a score knows only their distance.",
        "Su 2021",
    ),
    Paper(
        "On layer normalization in the transformer architecture",
        "Ruibin Xiong, Yunchang Yang, Di He and others",
        2020,
        f"{ARXIV}2002.04745",
        "Where the norm stands before each sub-layer, gradients are even at the start and no warm-up is needed.",
        "Xiong 2020",
    ),
    Paper(
        "An image is worth 16x16 words: transformers for image recognition at scale",
        "Alexey Dosovitskiy, Lucas Beyer, Alexander Kolesnikov and others",
        2020,
        f"{ARXIV}2010.11929",
        "Cut a picture into patches, read them as words, and the same encoder recognises what is in it.",
        "Dosovitskiy 2020",
    ),
    Paper(
        "BERT: pre-training of deep bidirectional transformers for language understanding",
        "Jacob Devlin, Ming-Wei Chang, Kenton Lee, Kristina Toutanova",
        2018,
        f"{ARXIV}1810.04805",
        "An encoder that fills in hidden words from both sides learns vectors that serve many other tasks.",
        "Devlin 2018",
    ),
    Paper(
        "Scaling laws for neural language models",
        "Jared Kaplan, Sam McCandlish, Tom Henighan and others",
        2020,
        f"{ARXIV}2001.08361",
        "The loss falls as a power of parameters, data and compute, over many orders of magnitude.",
        "Kaplan 2020",
    ),
    Paper(
        "The Llama 3 herd of models",
        "Llama team, AI at Meta",
        2024,
        f"{ARXIV}2407.21783",
        "How a family of open models up to 405 billion parameters was built, and why its heads share keys.",
        "Llama 3 2024",
    ),
    Paper(
        "FlashAttention: fast and memory-efficient exact attention with IO-awareness",
        "Tri Dao, Daniel Y. Fu, Stefano Ermon, Atri Rudra, Christopher Ré",
        2022,
        f"{ARXIV}2205.14135",
        "The same attention, worked out in tiles that fit into fast memory, never writes its matrix down.",
        "Dao 2022",
    ),
    Paper(
        "GQA: training generalized multi-query transformer models from multi-head checkpoints",
        "Joshua Ainslie, James Lee-Thorp, Michiel de Jong and others",
        2023,
        f"{ARXIV}2305.13245",
        "Let groups of query heads share a key head: a trained model is converted with little further training.",
        "Ainslie 2023",
    ),
    Paper(
        "Mixtral of experts",
        "Albert Q. Jiang, Alexandre Sablayrolles, Antoine Roux and others",
        2024,
        f"{ARXIV}2401.04088",
        "Each token is sent to two of eight feed-forwards, so most parameters rest at any one time.",
        "Jiang 2024",
    ),
    Paper(
        "Mamba: linear-time sequence modeling with selective state spaces",
        "Albert Gu, Tri Dao",
        2023,
        f"{ARXIV}2312.00752",
        "A recurrence whose gates depend on the token can choose what to keep, at a cost that grows along a line.",
        "Gu and Dao 2023",
    ),
    Paper(
        "Lost in the middle: how language models use long contexts",
        "Nelson F. Liu, Kevin Lin, John Hewitt and others",
        2023,
        f"{ARXIV}2307.03172",
        "Models find what stands at the start or the end of a long input, and overlook what is between.",
        "Liu 2023",
    ),
)

PYTHON = """\
from clearhead.claims.catalogue import find, names
from clearhead.studio.lesson.papers import PAPERS

sources = [find(name).source.paper for name in names()]
for paper in PAPERS:
    print(paper.authors.split(",")[0], "and others:", sum(paper.named in source for source in sources), "claims")
"""


@operation("papers.list")
def papers(studio: Studio) -> Answer:
    """The papers in the lesson's order, each with the claims whose source it is, and their verdicts where the folder of
    reports has any.
    """
    verdicts = _verdicts(studio)
    found = [
        {
            **paper._asdict(),
            "number": number,
            "claims": [{**claim, **verdicts.get(claim["name"], {})} for claim in claims],
        }
        for number, (paper, claims) in enumerate(zip(PAPERS, _measuring(), strict=True), 1)
    ]
    return Answer(
        data={"papers": found, "measured": len(verdicts), "claims": len(names())},
        python=PYTHON,
        printed=tuple(float(len(claims)) for claims in _measuring()),
    )


@cache
def _measuring() -> list[list[dict[str, Any]]]:
    """The claims of each paper."""
    sources = {name: find(name).source for name in names()}
    return [
        [
            {"name": name, "says": find(name).says, "statements": list(source.statements)}
            for name, source in sources.items()
            if paper.named in source.paper
        ]
        for paper in PAPERS
    ]


def _verdicts(studio: Studio) -> dict[str, dict[str, Any]]:
    """What the reports in the folder came to; one that can't be read is as one that is not there."""
    reports = {name: kept_result(studio, name) for name in names()}
    return {
        name: {"verdict": str(report["verdict"]), "quick": bool(report["quick"])}
        for name, report in reports.items()
        if report is not None
    }
