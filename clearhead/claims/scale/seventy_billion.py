"""The cache of Llama 3 70B, counted from its config and from what a slice of it really keeps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from clearhead.claims import figures
from clearhead.claims.claim import Claim, Cost, Mark, Measured, Run, Source
from clearhead.claims.ingredients.small_models import new_model
from clearhead.config import AttentionConfig, TokensConfig, TransformerConfig
from clearhead.costs import counts
from clearhead.costs.devices import GIB
from clearhead.costs.source import read_config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LENGTH = 131_072
LENGTHS = (2**10, 2**12, 2**14, 2**16, 2**17)
TOKENS = 16
BFLOAT16 = 2


def measure(run: Run) -> Measured:
    config = read_config("llama3-70b").config
    assert isinstance(config, TransformerConfig) and config.decoder is not None
    n_layers, op = len(config.decoder.blocks), config.decoder.blocks[0].mixer.op
    assert isinstance(op, AttentionConfig)
    told = counts(config)
    kept = kept_in_a_layer(config, op, run.seed)
    many = kept_in_a_layer(config, replace(op, n_kv_heads=op.n_heads), run.seed)
    return Measured(
        values={
            "parameters": told.parameters.total,
            "bytes a token": told.state(1, 1).per_token,
            "bytes a token, as kept": kept * n_layers,
            "GiB at 131,072 tokens": told.state(1, LENGTH).total / GIB,
            "bytes a token with a key-value head for each head": many * n_layers,
            "times as much without grouping": many / kept,
            "layers": n_layers,
            "query heads": op.n_heads,
            "key-value heads": op.n_kv_heads,
            "width of a head": op.d_head,
        },
        series={
            "n": list(LENGTHS),
            "grouped": [told.state(1, n).total / GIB for n in LENGTHS],
            "multi_head": [told.state(1, n).multi_head_total / GIB for n in LENGTHS],
            "weights": BFLOAT16 * told.parameters.total / GIB,
        },
    )


def kept_in_a_layer(config: TransformerConfig, op: AttentionConfig, seed: int) -> int:
    """Bytes a token that one real layer keeps in bfloat16: all as published but the stream's width, the vocabulary and
    the feed-forward, which keep nothing.
    """
    assert config.decoder is not None
    first = config.decoder.blocks[0]
    block = replace(first, mixer=replace(first.mixer, op=op), ffn=None)
    embed = replace(config.decoder.embed, front=TokensConfig(vocab_size=8))
    narrow = replace(config, d_model=16, decoder=replace(config.decoder, embed=embed, blocks=(block,)))
    model = new_model(narrow, seed).bfloat16()
    state = model.new_state()
    with torch.no_grad():
        model(torch.arange(TOKENS)[None] % 8, state=state)
    return state.nbytes // TOKENS


def draw(results: Sequence[Measured]) -> Figure:
    figure, (axes,) = figures.panels(1)
    series, plain = results[0].series, figures.styles()
    for name, says in (("multi_head", "64 key-value heads"), ("grouped", "8 key-value heads, as it is")):
        axes.plot(series["n"], series[name], label=says, **next(plain))
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(series["n"], [f"{n:,}" for n in series["n"]])
    ticks = [2.0**power for power in range(-2, 9, 2)]
    axes.set_yticks(ticks, [f"{x:g}" for x in ticks])
    figures.mark(axes, 40, "mark: 40 GiB at 131,072 tokens")
    axes.axhline(series["weights"], color=figures.FAINT, linewidth=1.2, linestyle=":", label="the weights")
    axes.set_xlabel("tokens")
    axes.set_ylabel("GiB in bfloat16")
    axes.legend(loc="lower right")
    return figure


def exactly(of: str, number: float, why: str, unit: str = "") -> Mark:
    return Mark(of=of, low=number, high=number, why=why, unit=unit)


CLAIM = Claim(
    says="Llama 3 70B has 80 layers, 64 query heads and 8 key-value heads of 128. It keeps 327,680 bytes a token, and "
    "40 GiB of a text of 131,072; with a key-value head for each query head it would keep 8 times as much.",
    source=Source(statements=(59, 61), paper="Llama 3 2024, table 3; Ainslie 2023, section 2.2"),
    how="Parameters and bytes in bfloat16 are counted from the published config. Beside that, one real layer with its "
    "heads (in a narrow stream, whose width the cache does not depend on) reads 16 tokens, and the bytes of its state "
    "are taken 80 times; and the same with 64 key-value heads. The layers, heads and widths are the config's own: they "
    "are told, and judged by the bytes that they make.",
    marks=(
        exactly("parameters", 70_553_706_496, "the size of the published checkpoint"),
        exactly("bytes a token", 327_680, "keys and values, 80 layers, 8 heads of 128, 2 bytes", "bytes"),
        exactly("bytes a token, as kept", 327_680, "a real layer keeps what the formula says", "bytes"),
        exactly("GiB at 131,072 tokens", 40, "327,680 bytes times 131,072", "GiB"),
        exactly("bytes a token with a key-value head for each head", 2_621_440, "64 heads in place of 8", "bytes"),
        exactly("times as much without grouping", 8, "64 query heads share 8 key-value heads"),
    ),
    measure=measure,
    draw=draw,
    cost=Cost(minutes=0.1),
)
