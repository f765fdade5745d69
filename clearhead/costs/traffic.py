"""What attention moves between a device's memory and its fast memory (Dao 2022, FlashAttention).

    standard   4 N d + 4 N^2 numbers a head (algorithm 0): Q and K in and S out; S in and P out; P and V in and O out
    tiled      2 N d + T_c 3 N d (algorithm 1): K and V in once; for each of the T_c = N / B_c blocks of them Q in, and
               O in and out again

with B_c = ceil(M / 4 d), for a fast memory of M numbers: a block each of Q, K, V and O fits. This is theorem 2, the
standard form Theta(N d + N^2), the tiled Theta(N^2 d^2 / M). The two numbers a row that the online softmax keeps (4 N
T_c, some percent) are left out as there.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    LatentAttentionConfig,
    Mamba2Config,
    MambaConfig,
    RecurrentConfig,
)
from clearhead.costs.names import not_understood
from clearhead.errors import ClearheadError


@dataclass(frozen=True)
class Traffic:
    """Bytes that attention moves in one pass over one text, of all layers and heads."""

    standard: int
    """The matrix of scores and that of the pattern are written out, and read again."""
    tiled: int
    """They never leave the fast memory."""
    scores: int
    """The largest thing that the standard form writes: all scores of one layer."""

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.standard + other.standard, self.tiled + other.tiled, max(self.scores, other.scores))


@dataclass(frozen=True)
class Heads:
    """So many heads, whose keys and values have these widths."""

    n: int
    d_key: int
    d_value: int


def standard(n_queries: int, n_keys: int, heads: Heads) -> int:
    """Numbers moved by algorithm 0, in one layer: every step reads all it needs and writes all it makes."""
    q, z = n_queries * heads.d_key, n_queries * heads.d_value
    k, v = n_keys * heads.d_key, n_keys * heads.d_value
    return heads.n * (q + k + v + z + 4 * n_queries * n_keys)


def tiled(n_queries: int, n_keys: int, heads: Heads, fast_memory: int) -> int:
    """Numbers moved by algorithm 1, in one layer, for a fast memory of so many numbers.

    Raises:
        ClearheadError: not one row of a head fits.
    """
    width = max(heads.d_key, heads.d_value)
    if fast_memory < 4 * width:
        raise ClearheadError(
            f"a fast memory of {fast_memory} numbers can't hold one row each of queries, keys, values and output of "
            f"a head of {width}: {4 * width} at least are needed"
        )
    n_blocks = -(-n_keys // -(-fast_memory // (4 * width)))
    once = n_keys * (heads.d_key + heads.d_value)
    each = n_queries * (heads.d_key + 2 * heads.d_value)
    return heads.n * (once + n_blocks * each)


@singledispatch
def heads_of(op: Any) -> Heads | None:
    """The heads of a mixer that has some; a scan or a recurrent network writes no matrix of
    scores out.

    Raises:
        ClearheadError: nothing is known of such a mixer.
    """
    raise not_understood(op)


@heads_of.register
def _attention(op: AttentionConfig) -> Heads:
    return Heads(op.n_heads, op.d_head, op.d_head)


@heads_of.register
def _latent_attention(op: LatentAttentionConfig) -> Heads:
    return Heads(op.n_heads, op.widths.nope + op.widths.rope, op.widths.value)


@heads_of.register(MambaConfig)
@heads_of.register(Mamba2Config)
@heads_of.register(RecurrentConfig)
def _scan(op: MambaConfig | Mamba2Config | RecurrentConfig) -> None:
    return None


def traffic(blocks: Iterable[BlockConfig], n_tokens: int, n_source: int, fast_bytes: int, width: int) -> Traffic:
    """Of all attention of a stack: over the text itself, and over the source where it looks at one."""
    layers = []
    for block in blocks:
        looks = [(block.mixer.op, n_tokens), *([(block.cross.op, n_source)] if block.cross is not None else [])]
        layers += [(heads, n_keys) for op, n_keys in looks if (heads := heads_of(op)) is not None]
    return Traffic(
        standard=width * sum(standard(n_tokens, n_keys, heads) for heads, n_keys in layers),
        tiled=width * sum(tiled(n_tokens, n_keys, heads, fast_bytes // width) for heads, n_keys in layers),
        scores=width * max((heads.n * n_tokens * n_keys for heads, n_keys in layers), default=0),
    )
