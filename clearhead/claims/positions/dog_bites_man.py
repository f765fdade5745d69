"""'Dog bites man' and 'man bites dog' are the same set of vectors to attention without positions."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from clearhead.checkpoints.load import load
from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.config import AttentionConfig, BlockConfig, TransformerConfig
from clearhead.model.transformer import Transformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORDS = ("dog", "bites", "man")
ORDERS = tuple(itertools.permutations(WORDS))
MIRRORED = ORDERS.index(("man", "bites", "dog"))


def without_positions(model: Transformer) -> Transformer:
    """The same weights, with nothing that tells places apart."""
    stack = model.config.stack
    bare = replace(stack, embed=replace(stack.embed, positions=None), blocks=tuple(map(_bare, stack.blocks)))
    twin = Transformer(replace(model.config, encoder=bare))
    twin.load_state_dict(model.state_dict())
    return twin.eval()


def _bare(block: BlockConfig) -> BlockConfig:
    op = block.mixer.op
    assert isinstance(op, AttentionConfig)
    return replace(block, mixer=replace(block.mixer, op=replace(op, positions=None)))


def measure(run: Run) -> Measured:
    model = load("clear-bert")
    assert isinstance(model, Transformer) and isinstance(model.config, TransformerConfig)
    pieces = [model.tokenizer.encode(f" {word}", bos=False) for word in WORDS]
    far = {}
    for name, read in (("with", model), ("without", without_positions(model))):
        read = read.double()
        sets = [_vectors(read, [piece for word in order for piece in pieces[WORDS.index(word)]]) for order in ORDERS]
        far[name] = [_between(sets[0], other) for other in sets]
    return Measured(
        values={
            "distance without positions": far["without"][MIRRORED],
            "distance with positions": far["with"][MIRRORED],
            "largest distance without positions, any order": max(far["without"]),
            "smallest distance with positions, any other order": min(far["with"][1:]),
        },
        series={"distances": far},
    )


def _vectors(model: Transformer, ids: Sequence[int]) -> torch.Tensor:
    """What comes out of the last block, a vector a token."""
    with torch.no_grad():
        stream_BTD: torch.Tensor = model(torch.tensor([list(ids)]), read=False)
    return stream_BTD[0]


def _between(one_TD: torch.Tensor, other_TD: torch.Tensor) -> float:
    """How far two sets are apart: the farthest that a vector of either has to its nearest in the other, by the
    length of a vector (Hausdorff's distance, relative).
    """
    # Not through a product of matrices, whose rounding would hide what is nearly nothing.
    distance_TT = (one_TD[:, None] - other_TD[None]).norm(dim=-1)
    farthest = max(float(distance_TT.amin(0).max()), float(distance_TT.amin(1).max()))
    return farthest / float(one_TD.norm(dim=-1).mean())


def draw(results: Sequence[Measured]) -> Figure:
    figure, (axes,) = figures.panels(width=7.6)
    floor = 1e-17
    kinds = (("with", "with its positions", "o"), ("without", "without positions", "s"))
    for (name, label, marker), colour in zip(kinds, figures.COLOURS, strict=False):
        heights = [max(distance, floor) for distance in results[0].series["distances"][name][1:]]
        axes.plot(range(len(heights)), heights, marker, color=colour, label=label, markersize=8)
    figures.mark(axes, 1e-12, "rounding")
    axes.set_yscale("log")
    axes.set_ylim(floor, 100)
    axes.set_xticks(range(len(ORDERS) - 1), [" ".join(order) for order in ORDERS[1:]], fontsize=9)
    axes.set_xlim(-0.5, len(ORDERS) - 1.5)
    axes.set_xlabel("read instead of 'dog bites man'")
    axes.set_ylabel("distance of the two sets, by a vector's length")
    axes.legend(loc="center right", bbox_to_anchor=(1, 0.62))
    return figure


CLAIM = Claim(
    says="'Dog bites man' and 'man bites dog' give attention without positions the same set of vectors; with "
    "positions they give another.",
    source=Source(statements=(34,), paper="Vaswani 2017, section 3.5 (why positions are needed)"),
    how="clear-bert, the shipped encoder, reads the three words in all six orders, in float64; once as it was "
    "trained, with rotary positions, and once with the same weights and its positions taken out. Two sets of vectors "
    "are as far apart as the loneliest vector of either is from its nearest in the other, by the length of a vector.",
    marks=(
        Mark(of="distance without positions", high=1e-12, why="The same vectors in another order, but for rounding."),
        Mark(
            of="largest distance without positions, any order",
            high=1e-12,
            why="So it is for every order of the three words.",
        ),
        Mark(
            of="distance with positions",
            low=0.02,
            why="A fiftieth of a vector's length: far above what float32 rounds off, and above what float64 does by "
            "thirteen orders of magnitude.",
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.02),
)
