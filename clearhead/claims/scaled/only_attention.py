"""Attention is the only place where tokens communicate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from clearhead.checkpoints.load import load
from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.small_models import NORM, attention, block, decoder, new_model
from clearhead.config import (
    BiasConfig,
    BlockConfig,
    EmbedConfig,
    ExpertsConfig,
    FeedForwardConfig,
    HeadsConfig,
    LearnedPositions,
    NormConfig,
    StackConfig,
    SublayerConfig,
    TokenHeadConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.lens import edit, zero
from clearhead.lens.edit import Edits
from clearhead.model.transformer import Transformer

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from torch import Tensor

LENGTH, CHANGED, VOCABULARY, WIDTH = 16, 5, 100, 64
ATTENTION = "layers.*.mixer.out"
LAYER_NORM = NormConfig(kind="layer", eps=1e-5, bias=True)


def layer_norm_block(*, causal: bool, pre: bool) -> BlockConfig:
    """Biases, LayerNorm before or after each part, a feed-forward of two matrices."""
    op = replace(attention(4, 16, causal=causal), positions=None, bias=BiasConfig(q=True, k=True, v=True, o=True))
    feed_forward = FeedForwardConfig(d_ff=4 * WIDTH, activation="gelu", gated=False, bias=True)
    before, after = (LAYER_NORM, None) if pre else (None, LAYER_NORM)
    return BlockConfig(
        mixer=SublayerConfig(op=op, pre=before, after=after),
        ffn=SublayerConfig(op=feed_forward, pre=before, after=after),
    )


def configs() -> dict[str, TransformerConfig]:
    """Small ones, each in the manner of a published family."""
    embed = EmbedConfig(front=TokensConfig(vocab_size=VOCABULARY), positions=LearnedPositions(n=LENGTH))
    heads = HeadsConfig(tokens=TokenHeadConfig(tie=True))
    gpt_2 = StackConfig(embed=embed, blocks=(layer_norm_block(causal=True, pre=True),) * 3, norm=LAYER_NORM)
    both_ways = layer_norm_block(causal=False, pre=False)
    bert = StackConfig(embed=replace(embed, norm=LAYER_NORM), blocks=(both_ways,) * 3)
    llama = block(attention(4, 16, n_kv_heads=2), 2 * WIDTH)
    experts = ExpertsConfig(n_experts=4, n_chosen=2, expert=FeedForwardConfig(d_ff=WIDTH))
    routed = replace(llama, ffn=SublayerConfig(op=experts, pre=NORM))
    return {
        "Llama-like": decoder((llama,) * 3, d_model=WIDTH, vocab_size=VOCABULARY),
        "GPT-2-like": TransformerConfig(d_model=WIDTH, decoder=gpt_2, heads=heads),
        "BERT-like": TransformerConfig(d_model=WIDTH, encoder=bert, heads=heads),
        "with experts": decoder((routed,) * 3, d_model=WIDTH, vocab_size=VOCABULARY),
    }


def measure(run: Run) -> Measured:
    models = {name: new_model(config, run.seed).double() for name, config in configs().items()}
    models["clear-gpt"] = load("clear-gpt", dtype=torch.float64)
    generator = torch.Generator().manual_seed(run.seed)
    whole, cut = {}, {}
    for name, model in models.items():
        tokens_BT = torch.randint(VOCABULARY, (1, LENGTH), generator=generator)
        whole[name] = change(model, tokens_BT, {})
        cut[name] = change(model, tokens_BT, {ATTENTION: zero})
    others = [i for i in range(LENGTH) if i != CHANGED]
    return Measured(
        values={
            "largest change elsewhere, without attention": max(changes[i] for changes in cut.values() for i in others),
            "least change of a later token, with attention": min(
                changes[i] for changes in whole.values() for i in others if i > CHANGED
            ),
            "least change of the token itself, without attention": min(changes[CHANGED] for changes in cut.values()),
            "change before it, causal, with attention": max(
                changes[i] for name, changes in whole.items() for i in range(CHANGED) if name != "BERT-like"
            ),
        },
        series={"with": whole, "without": cut},
    )


def change(model: Transformer, tokens_BT: Tensor, edits: Edits) -> list[float]:
    """How much the output of each token changes, at most, where one token is another."""
    other_BT = tokens_BT.clone()
    other_BT[0, CHANGED] = (other_BT[0, CHANGED] + 1) % VOCABULARY
    before_TV, after_TV = (edit(model, tokens, edits)[0] for tokens in (tokens_BT, other_BT))
    changes: list[float] = (after_TV - before_TV).abs().amax(-1).tolist()
    return changes


def draw(results: Sequence[Measured]) -> Figure:
    figure, panels = figures.panels(2, width=5.6, height=4.2)
    least = 1e-17
    for axes, (which, title) in zip(
        panels, (("with", "With attention"), ("without", "Attention's outputs zeroed")), strict=True
    ):
        for (name, changes), style in zip(results[0].series[which].items(), figures.styles(), strict=False):
            axes.plot(range(LENGTH), [max(value, least) for value in changes], label=name, **style)
        axes.set_yscale("log")
        axes.set_ylim(least / 3, 300)
        figures.mark(axes, 1e-12, "mark: others stay below" if which == "without" else "rounding ends here")
        axes.set_xlabel(f"position (token {CHANGED} is changed)")
        axes.set_ylabel("largest change of the output")
        axes.set_title(f"{title}; exactly 0 is drawn at 1e-17", fontsize=10)
    panels[0].legend(loc="center right")
    return figure


CLAIM = Claim(
    says="Attention is the only place where tokens communicate: with its outputs zeroed, changing one token changes "
    "what comes out at no other position; with them it does.",
    source=Source(
        statements=(28,), paper="Vaswani 2017, section 3.3 ('applied to each position separately and identically')"
    ),
    how="Random models of three layers in the manner of Llama, GPT-2, BERT (which sees both ways) and one with "
    "experts, and the trained clear-gpt, read 16 random tokens in float64, and the same with the sixth one changed. "
    "The output of each position is compared, as the models are and with what each layer's attention adds set to zero.",
    marks=(
        Mark(
            of="largest change elsewhere, without attention",
            high=1e-12,
            why="The same numbers go through the same operations, so nothing but rounding could differ.",
        ),
        Mark(
            of="least change of a later token, with attention",
            low=1e-9,
            why="Every later token may look at the changed one, which shows far above rounding.",
        ),
        Mark(
            of="least change of the token itself, without attention",
            low=1e-3,
            why="The changed token still goes through its own feed-forwards: the models do compute something.",
        ),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.05),
)
