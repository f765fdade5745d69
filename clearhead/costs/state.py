"""What decoding keeps of the text it has read, in bytes.

full or grouped   2 G K numbers a token: keys and values of G heads of width K (Ainslie 2023: G < H are grouped)
window            the same, of no more tokens than the window
latent            C + R numbers a token: the vector keys and values are made from, and a rotated key (DeepSeek-V2)
cross             2 G K numbers a token of the source, however long the text
scan              the state and the last inputs of the convolution, however long the text
recurrent         the hidden vector, and of an LSTM the cell, however long the text
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from clearhead.config import (
    AdditiveAttentionConfig,
    AttentionConfig,
    BlockConfig,
    LatentAttentionConfig,
    Mamba2Config,
    MambaConfig,
    RecurrentConfig,
    StackConfig,
)
from clearhead.costs.names import not_understood
from clearhead.costs.weights import mamba2_channels
from clearhead.ops.recurrence import HAS_CELL

STATE_WIDTH = 4
"""The state of a scan or a recurrent network is in float32 at least: it is carried over the whole text."""


@dataclass(frozen=True)
class StateBytes:
    """Bytes that decoding keeps of the texts it has read."""

    total: int
    """Of all texts of the batch."""
    per_token: int
    """What one token of one text takes in the layers that keep it; in a window's, while it is in reach."""
    growth: int
    """What the next token of one text adds: nothing in windows that are full, in scans, and in recurrent networks."""
    kinds: dict[str, int]
    """`total` by kind of layer: full, grouped, window, latent, cross, scan, recurrent."""
    multi_head_total: int
    """What multi-head attention would have taken in place of every mixer: keys and values of every head, for every
    token; in place of a scan or a recurrent network, two vectors of the stream's width (in Vaswani 2017, heads x width
    is d_model)."""

    @property
    def of_text(self) -> int:
        """Without what is kept of a source."""
        return self.total - self.kinds.get("cross", 0)


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What one layer keeps of one text: bytes of each token, of so many tokens at most (None: of all), and bytes that
    are there whatever the length. `multi_head`: bytes a token of keys and values of every head.
    """

    kind: str
    per_token: int = 0
    reach: int | None = None
    fixed: int = 0
    multi_head: int

    def tokens(self, n_tokens: int) -> int:
        """How many of so many tokens are kept."""
        return n_tokens if self.reach is None else min(n_tokens, self.reach)

    def total(self, n_tokens: int) -> int:
        """Bytes, after so many tokens."""
        return self.fixed * (n_tokens > 0) + self.per_token * self.tokens(n_tokens)


@singledispatch
def kept(op: Any, d_model: int, width: int) -> Kept:
    """What a mixer keeps of one text, in numbers of `width` bytes.

    Raises:
        ClearheadError: nothing is known of such a mixer.
    """
    raise not_understood(op)


@kept.register
def _attention(op: AttentionConfig, d_model: int, width: int) -> Kept:
    window = op.mask.window if op.mask.kind == "causal" else None
    kind = "window" if window is not None else "full" if op.n_kv_heads == op.n_heads else "grouped"
    per_head = 2 * op.d_head * width
    return Kept(kind=kind, per_token=op.n_kv_heads * per_head, reach=window, multi_head=op.n_heads * per_head)


@kept.register
def _latent_attention(op: LatentAttentionConfig, d_model: int, width: int) -> Kept:
    w = op.widths
    of_heads = op.n_heads * (w.nope + w.rope + w.value)
    return Kept(kind="latent", per_token=(w.kv + w.rope) * width, multi_head=of_heads * width)


@kept.register
def _mamba(op: MambaConfig, d_model: int, width: int) -> Kept:
    tail, state = op.d_inner * (op.conv.width - 1), op.d_inner * op.d_state
    return _scan(tail, state, d_model, width)


@kept.register
def _mamba2(op: Mamba2Config, d_model: int, width: int) -> Kept:
    tail, state = mamba2_channels(op) * (op.conv.width - 1), op.n_heads * op.d_head * op.d_state
    return _scan(tail, state, d_model, width)


def _scan(tail: int, state: int, d_model: int, width: int) -> Kept:
    fixed = tail * width + state * max(width, STATE_WIDTH)
    return Kept(kind="scan", fixed=fixed, multi_head=2 * d_model * width)


@kept.register
def _recurrent(op: RecurrentConfig, d_model: int, width: int) -> Kept:
    vectors = 1 + (op.cell in HAS_CELL)
    fixed = vectors * op.d_hidden * max(width, STATE_WIDTH)
    return Kept(kind="recurrent", fixed=fixed, multi_head=2 * d_model * width)


def state_bytes(
    decoder: StackConfig | None, d_model: int, batch: int, context: int, width: int, source: int
) -> StateBytes:
    """What a decoder keeps of `batch` texts of `context` tokens each, and of sources of `source` tokens."""
    layers = [] if decoder is None else [kept(block.mixer.op, d_model, width) for block in decoder.blocks]
    crossed = [] if decoder is None else [one for block in decoder.blocks for one in _sources(block, d_model, width)]
    kinds: Counter[str] = Counter()
    for layer in layers:
        kinds[layer.kind] += batch * layer.total(context)
    n_source = source if context > 0 else 0
    for layer in crossed:
        kinds[layer.kind] += batch * layer.total(n_source)
    multi_head = sum(x.multi_head for x in layers) * context + sum(x.multi_head for x in crossed) * n_source
    return StateBytes(
        total=sum(kinds.values()),
        per_token=sum(layer.per_token for layer in layers),
        growth=sum(layer.per_token for layer in layers if layer.reach is None or context < layer.reach),
        kinds=dict(kinds),
        multi_head_total=batch * multi_head,
    )


def _sources(block: BlockConfig, d_model: int, width: int) -> Iterator[Kept]:
    """What a block keeps of a source: cross-attention its keys and values; a recurrent network each of its vectors and
    what its query is compared to, or its last vector alone, in the place of both.
    """
    if block.cross is not None:
        op = block.cross.op
        assert isinstance(op, AttentionConfig)  # the config sees to it
        per_head = 2 * op.d_head * width
        yield Kept(kind="cross", per_token=op.n_kv_heads * per_head, multi_head=op.n_heads * per_head)
    recurrent, wide = block.mixer.op, max(width, STATE_WIDTH)
    if isinstance(recurrent, RecurrentConfig) and recurrent.source is not None:
        multi_head = 2 * d_model * width
        if isinstance(recurrent.source, AdditiveAttentionConfig):
            a = recurrent.source.d_attention
            yield Kept(kind="cross", per_token=(d_model + a) * wide, multi_head=multi_head)
        else:
            yield Kept(kind="cross", per_token=2 * d_model * wide, reach=1, multi_head=multi_head)
