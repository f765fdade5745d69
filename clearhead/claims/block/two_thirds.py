"""Two thirds of a standard block's parameters are in its MLP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.config import TransformerConfig
from clearhead.costs import counts
from clearhead.costs.names import EXPERTS, FEED_FORWARD
from clearhead.costs.source import read_config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STANDARD = {
    "GPT-2": ("gpt2", "layers"),
    "BERT base": ("bert-base", "layers"),
    "ViT-B/16": ("vit-b-16", "layers"),
    "Transformer 2017 base, encoder": ("transformer-2017-base", "encoder.layers"),
}
"""What a model is called, its config, and where its blocks are."""
OTHERS = {
    "Transformer 2017 base, decoder": ("transformer-2017-base", "layers"),
    "Llama 3 8B": ("llama3-8b", "layers"),
    "Gemma 3 270M": ("gemma3-270m", "layers"),
    "Qwen3 30B-A3B": ("qwen3-30b-a3b", "layers"),
    "Mixtral 8x7B": ("mixtral-8x7b", "layers"),
}
TWO_THIRDS = 2 / 3


def measure(run: Run) -> Measured:
    shares = {name: share_in_mlp(config, where) for name, (config, where) in (STANDARD | OTHERS).items()}
    return Measured(values=shares, series={"standard": [*STANDARD], "others": [*OTHERS]})


def share_in_mlp(name: str, where: str) -> float:
    """The share of the MLP's parameters, or of all experts', in those of the blocks."""
    config = read_config(name).config
    assert isinstance(config, TransformerConfig)
    of_blocks = [weight for weight in counts(config).weights if (weight.block or "").startswith(where)]
    in_mlp = sum(weight.size for weight in of_blocks if weight.part in (FEED_FORWARD, EXPERTS))
    return in_mlp / sum(weight.size for weight in of_blocks)


def draw(results: Sequence[Measured]) -> Figure:
    figure, (axes,) = figures.panels(width=8.4, height=4.0)
    names = [*STANDARD, *OTHERS]
    for i, name in enumerate(reversed(names)):
        share = results[0].values[name]
        assert not isinstance(share, tuple)
        standard = name in STANDARD
        axes.barh(i, share, color=figures.COLOURS[0 if standard else 1], alpha=0.75, hatch="" if standard else "//")
        axes.annotate(f"{share:.3f}", (1.01, i), va="center")
    axes.set_yticks(range(len(names)), reversed(names))
    axes.set(xlabel="share of the blocks' parameters in the MLP (hatched: no standard block)", xlim=(0, 1.08))
    axes.set_ylim(-0.6, len(names) + 0.4)
    figures.mark(axes, TWO_THIRDS, "", across=False)
    axes.annotate("two thirds", (TWO_THIRDS, len(names) - 0.2), xytext=(4, 0), textcoords="offset points")
    axes.grid(visible=False, axis="y")
    return figure


CLAIM = Claim(
    says="About two thirds of the parameters of a standard block are in its MLP: attention has four matrices of d x d, "
    "and the MLP two of d x 4d. Other blocks differ: a decoder's with cross-attention has half, grouped queries and a "
    "wide gated MLP bring the share to 0.8 in Llama 3, and experts to nearly all.",
    source=Source(statements=(46,), paper="Vaswani 2017, Attention Is All You Need, sections 3.1 to 3.3 and table 3"),
    how="Counted from published configs, biases and norms included, of all blocks of a stack together; embeddings and "
    "heads lie outside the blocks. `cost` counts what loading allocates, and the tests hold its counts to real models. "
    "The models that are no standard blocks are shown and not judged. Nothing is random.",
    marks=tuple(
        Mark(
            of=name,
            why="Two thirds, and 1 % for biases and norms, which are not in 8 d^2 / 12 d^2.",
            low=0.99 * TWO_THIRDS,
            high=1.01 * TWO_THIRDS,
        )
        for name in STANDARD
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.05),
)
