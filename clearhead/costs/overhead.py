"""What a step of writing takes beside reading weights: hundreds of small operations, each of which has to be called.

Measured on a model of the same layers, as many of them and of the same kinds, that is so narrow that nothing else is
left.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from functools import singledispatch
from typing import Any

import torch

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    ExpertsConfig,
    FeedForwardConfig,
    HeadsConfig,
    LatentAttentionConfig,
    LatentWidths,
    Mamba2Config,
    MambaConfig,
    RecurrentConfig,
    RotaryConfig,
    SublayerConfig,
    TokensConfig,
    TransformerConfig,
)
from clearhead.costs.names import not_understood
from clearhead.costs.stopwatch import seconds_of
from clearhead.model.build import build

WIDTH = 8
"""Of a head, and of all else that can be as narrow."""
STREAM = 32
WARM, STEPS = 3, 15
"""Steps before and while time is taken."""


def step_overhead(config: TransformerConfig, dtype: torch.dtype, rows: int) -> float:
    """Seconds that a step of `rows` texts takes where products are next to nothing. The state of torch's random numbers
    stays as it is.
    """
    with torch.random.fork_rng(devices=[]):
        model = build(narrow_model(config)).to(dtype).eval()
    for parameter in model.parameters():
        parameter.requires_grad_(False).fill_(0.01)
    tokens_B1 = torch.ones(rows, 1, dtype=torch.long)
    state = model.new_state(WARM + STEPS + 2)
    with torch.inference_mode():
        for _ in range(WARM):
            model(tokens_B1, state=state, last=1)
        return statistics.median(seconds_of(lambda: model(tokens_B1, state=state, last=1), STEPS))


def narrow_model(config: TransformerConfig) -> TransformerConfig:
    """The decoder of a model by itself, with as many layers, hardly any width, and the head of tokens that it has."""
    decoder = config.stack
    blocks = tuple(_block(block) for block in decoder.blocks)
    front = decoder.embed.front
    few = replace(front, vocab_size=min(front.vocab_size, 64)) if isinstance(front, TokensConfig) else front
    embed = replace(decoder.embed, front=few, width=None)
    head = None if config.heads.tokens is None else replace(config.heads.tokens, transform=None)
    return replace(
        config,
        d_model=STREAM,
        encoder=None,
        decoder=replace(decoder, embed=embed, blocks=blocks),
        heads=HeadsConfig(tokens=head),
    )


def _block(block: BlockConfig) -> BlockConfig:
    """What looks at a source is left out: there is none."""
    ffn = None if block.ffn is None else _sublayer(block.ffn)
    return replace(block, mixer=_sublayer(block.mixer), cross=None, ffn=ffn)


def _sublayer(sublayer: SublayerConfig) -> SublayerConfig:
    return replace(sublayer, op=narrow(sublayer.op))


@singledispatch
def narrow(op: Any) -> Any:
    """An operation of the same kind, with as many heads and experts, that is as narrow as it can be.

    Raises:
        ClearheadError: nothing is known of such an operation.
    """
    raise not_understood(op)


def _positions(positions: Any) -> Any:
    """Frequencies that fit a narrow head. How they are scaled makes no difference to the time."""
    return replace(positions, fraction=1.0, scaling=None) if isinstance(positions, RotaryConfig) else positions


@narrow.register
def _attention(op: AttentionConfig) -> AttentionConfig:
    return replace(op, d_head=WIDTH, positions=_positions(op.positions))


@narrow.register
def _latent(op: LatentAttentionConfig) -> LatentAttentionConfig:
    widths = LatentWidths(q=None if op.widths.q is None else WIDTH, kv=WIDTH, nope=WIDTH, rope=WIDTH, value=WIDTH)
    return replace(op, widths=widths, positions=_positions(op.positions))


@narrow.register
def _mamba(op: MambaConfig) -> MambaConfig:
    return replace(op, d_inner=2 * STREAM, d_state=WIDTH, dt_rank=WIDTH)


@narrow.register
def _mamba2(op: Mamba2Config) -> Mamba2Config:
    return replace(op, d_head=WIDTH, d_state=WIDTH)


@narrow.register
def _recurrent(op: RecurrentConfig) -> RecurrentConfig:
    return replace(op, d_hidden=STREAM, source=None)


@narrow.register
def _feed_forward(op: FeedForwardConfig) -> FeedForwardConfig:
    return replace(op, d_ff=STREAM)


@narrow.register
def _experts(op: ExpertsConfig) -> ExpertsConfig:
    shared = None if op.shared is None else narrow(op.shared)
    return replace(op, expert=narrow(op.expert), shared=shared)
