"""Every tensor of weights that a config asks for: its shape, the part it belongs to, and how processes share it.

Each kind of record has its own small function; a new kind of sub-layer is a new one. What is counted of weights, and of
what training keeps beside them, follows from this list.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import singledispatch
from math import prod
from typing import Any

from clearhead.config import (
    AdditiveAttentionConfig,
    AlibiConfig,
    AttentionConfig,
    BlockConfig,
    EmbedConfig,
    ExpertsConfig,
    FeedForwardConfig,
    FramesConfig,
    HeadsConfig,
    KeptHeads,
    LatentAttentionConfig,
    LearnedPositions,
    Mamba2Config,
    MambaConfig,
    NormConfig,
    PatchesConfig,
    RecurrentConfig,
    RelativeBiasConfig,
    StackConfig,
    SublayerConfig,
    TokensConfig,
    TransformConfig,
    TransformerConfig,
    TwoTowersConfig,
)
from clearhead.costs.names import (
    ATTENTION,
    EMBEDDING,
    EXPERTS,
    FEED_FORWARD,
    HEADS,
    NORMS,
    RECURRENCE,
    ROUTER,
    SCAN,
    not_understood,
)
from clearhead.ops.recurrence import GATES


@dataclass(frozen=True, kw_only=True)
class Weight:
    """One tensor of weights."""

    part: str
    shape: tuple[int, ...]
    matrix: bool = False
    """It turns a vector into another, and is no table, router or head: what Muon moves, in a block."""
    trained: bool = True
    chosen: int | None = None
    """So many of its first dimension work on a token; None: all of it."""
    split: int | None = None
    """The dimension in which tensor parallelism shares it; None: it is whole everywhere."""
    block: str | None = None
    """The block it lies in; None: it lies outside, or in a block that shares weights with another."""

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def active(self) -> int:
        """How many of its numbers work on one token."""
        return self.size if self.chosen is None else self.size // self.shape[0] * self.chosen


Weights = Iterator[Weight]


@singledispatch
def weights(config: Any, d_model: int, kept: KeptHeads | None = None) -> Weights:
    """The weights that a part has, in a stream of `d_model` numbers. `kept`: which heads are left of attention's.

    Raises:
        ClearheadError: nothing is known of such a part.
    """
    raise not_understood(config)


def _linear(part: str, n_in: int, n_out: int, bias: bool, split: int | None = None, matrix: bool = True) -> Weights:
    """A matrix, and its bias. Shared by columns (`split` 0) its bias goes along, shared by rows it is whole."""
    yield Weight(part=part, shape=(n_out, n_in), matrix=matrix, split=split)
    if bias:
        yield Weight(part=part, shape=(n_out,), split=0 if split == 0 else None)


def _norm(config: NormConfig | None, width: int, part: str = NORMS) -> Weights:
    if config is None:
        return
    yield Weight(part=part, shape=(width,))
    if config.bias:
        yield Weight(part=part, shape=(width,))


# ---- mixers


@weights.register
def _attention(op: AttentionConfig, d_model: int, kept: KeptHeads | None = None) -> Weights:
    """Vaswani 2017, section 3.2: four matrices; those of keys and values are narrower where heads are grouped."""
    d_q, d_kv = op.n_heads * op.d_head, op.n_kv_heads * op.d_head
    made_q, made_k = made_widths(op, kept)
    columns, rows = (0, 1) if heads_stand_apart(op) else (None, None)
    yield from _linear(ATTENTION, d_model, made_q, op.bias.q, columns)
    yield from _linear(ATTENTION, d_model, made_k, op.bias.k, columns)
    yield from _linear(ATTENTION, d_model, d_kv, op.bias.v, columns)
    yield from _linear(ATTENTION, d_q, d_model, op.bias.o, rows)
    if op.qk_norm is not None:
        one_head = op.qk_norm.over == "head"
        yield from _norm(op.qk_norm.norm, op.d_head if one_head else made_q)
        yield from _norm(op.qk_norm.norm, op.d_head if one_head else made_k)
    if op.scores.sinks:
        yield Weight(part=ATTENTION, shape=(op.n_heads,), split=columns)


def made_widths(op: AttentionConfig, kept: KeptHeads | None) -> tuple[int, int]:
    """How many numbers of queries and of keys are made: of heads that were cut off too, where a norm reads all."""
    if kept is not None and op.qk_norm is not None and op.qk_norm.over == "all_heads":
        return kept.of * op.d_head, kept.of_kv * op.d_head
    return op.n_heads * op.d_head, op.n_kv_heads * op.d_head


def heads_stand_apart(op: AttentionConfig) -> bool:
    """Whether processes can have some heads each: nothing is counted over all of them together."""
    together = op.qk_norm is not None and op.qk_norm.over == "all_heads"
    return not (together or isinstance(op.positions, AlibiConfig))


@weights.register
def _latent_attention(op: LatentAttentionConfig, d_model: int, kept: KeptHeads | None = None) -> Weights:
    """DeepSeek-AI 2024, DeepSeek-V2, section 2.1."""
    w, h = op.widths, op.n_heads
    if w.q is None:
        yield from _linear(ATTENTION, d_model, h * (w.nope + w.rope), False)
    else:
        yield from _linear(ATTENTION, d_model, w.q, op.bias)
        yield from _norm(op.norm, w.q)
        yield from _linear(ATTENTION, w.q, h * (w.nope + w.rope), False)
    yield from _linear(ATTENTION, d_model, w.kv + w.rope, op.bias)
    yield from _norm(op.norm, w.kv)
    yield from _linear(ATTENTION, w.kv, h * (w.nope + w.value), False)
    yield from _linear(ATTENTION, h * w.value, d_model, op.bias)
    if op.scores.sinks:
        yield Weight(part=ATTENTION, shape=(h,))


@weights.register
def _mamba(op: MambaConfig, d_model: int, kept: None = None) -> Weights:
    """Gu and Dao 2023, section 3.4 and figure 3."""
    f = op.d_inner
    yield from _linear(SCAN, d_model, 2 * f, op.bias)
    yield from _filters(f, op.conv.width, op.conv.bias)
    yield from _linear(SCAN, f, op.dt_rank + 2 * op.d_state, False)
    yield from _linear(SCAN, op.dt_rank, f, True)
    yield Weight(part=SCAN, shape=(f, op.d_state))
    yield Weight(part=SCAN, shape=(f,))
    yield from _linear(SCAN, f, d_model, op.bias)
    for width in (op.dt_rank, op.d_state, op.d_state):
        yield from _norm(op.inner_norm, width)


@weights.register
def _mamba2(op: Mamba2Config, d_model: int, kept: None = None) -> Weights:
    """Dao and Gu 2024, section 7.1 and figure 6."""
    f, channels = op.n_heads * op.d_head, mamba2_channels(op)
    yield from _linear(SCAN, d_model, f + channels + op.n_heads, op.bias)
    yield from _filters(channels, op.conv.width, op.conv.bias)
    for _ in ("step", "decay", "skip"):
        yield Weight(part=SCAN, shape=(op.n_heads,))
    yield from _norm(op.norm, f)
    yield from _linear(SCAN, f, d_model, op.bias)


def mamba2_channels(op: Mamba2Config) -> int:
    """What the convolution mixes: x, and for each group what is written and what is read."""
    return op.n_heads * op.d_head + 2 * op.n_groups * op.d_state


def _filters(n_channels: int, width: int, bias: bool) -> Weights:
    yield Weight(part=SCAN, shape=(n_channels, 1, width))
    if bias:
        yield Weight(part=SCAN, shape=(n_channels,))


@weights.register
def _recurrent(op: RecurrentConfig, d_model: int, kept: None = None) -> Weights:
    """Of each cell two matrices and two biases, as torch has them; what looks at a source; and a matrix where the
    width is another than the stream's.
    """
    c, f = gate_numbers(op), op.d_hidden
    for _ in range(1 + op.both_ways):
        yield from _linear(RECURRENCE, recurrent_input(op, d_model), c, True)
        yield from _linear(RECURRENCE, f, c, True)
    if op.source is not None:
        yield from _linear(RECURRENCE, d_model, f, True)
    if isinstance(op.source, AdditiveAttentionConfig):
        a = op.source.d_attention
        yield from _linear(ATTENTION, f, a, False)
        yield from _linear(ATTENTION, d_model, a, False)
        yield Weight(part=ATTENTION, shape=(a,))
    if f * (1 + op.both_ways) != d_model:
        yield from _linear(RECURRENCE, f * (1 + op.both_ways), d_model, False)


def gate_numbers(op: RecurrentConfig) -> int:
    """How many numbers a cell works out of a token and the vector before it."""
    return max(1, len(GATES[op.cell])) * op.d_hidden


def recurrent_input(op: RecurrentConfig, d_model: int) -> int:
    """How wide it is what a cell reads: a token, and what it is given of a source."""
    return d_model * (1 + (op.source is not None))


# ---- feed-forwards


@weights.register
def _feed_forward(op: FeedForwardConfig, d_model: int, kept: None = None) -> Weights:
    """Two matrices, or three with a gate (Shazeer 2020, equation 6)."""
    for _ in range(1 + op.gated):
        yield from _linear(FEED_FORWARD, d_model, op.d_ff, op.bias, 0)
    yield from _linear(FEED_FORWARD, op.d_ff, d_model, op.bias, 1)


@weights.register
def _experts(op: ExpertsConfig, d_model: int, kept: None = None) -> Weights:
    """As many feed-forwards as there are experts, in one tensor each; those that all tokens share are a plain one."""
    e = op.n_experts
    yield from _linear(ROUTER, d_model, e, op.router.bias, matrix=False)
    if op.router.correction:
        yield Weight(part=ROUTER, shape=(e,), trained=False)
    for weight in _feed_forward(op.expert, d_model):
        yield Weight(part=EXPERTS, shape=(e, *weight.shape), chosen=op.n_chosen)
    if op.shared is not None:
        yield from _feed_forward(op.shared, d_model)


# ---- what stands around them


@weights.register
def _sublayer(config: SublayerConfig, d_model: int) -> Weights:
    yield from weights(config.op, d_model, config.kept)
    for norm in (config.pre, config.out, config.after):
        yield from _norm(norm, d_model)


@weights.register
def _block(config: BlockConfig, d_model: int) -> Weights:
    for sublayer in sublayers(config):
        yield from _sublayer(sublayer, d_model)


def sublayers(block: BlockConfig) -> list[SublayerConfig]:
    """The two or three corrections of a block, in order."""
    return [sublayer for sublayer in (block.mixer, block.cross, block.ffn) if sublayer is not None]


@weights.register
def _embedding(config: EmbedConfig, d_model: int) -> Weights:
    width = config.width or d_model
    yield from weights(config.front, width)
    if isinstance(config.positions, LearnedPositions):
        yield Weight(part=EMBEDDING, shape=(config.positions.n, width))
    yield from _norm(config.norm, width)
    if config.width is not None:
        yield from _linear(EMBEDDING, width, d_model, True, matrix=False)


@weights.register
def _tokens(front: TokensConfig, width: int) -> Weights:
    yield Weight(part=EMBEDDING, shape=(front.vocab_size, width))
    if front.n_types:
        yield Weight(part=EMBEDDING, shape=(front.n_types, width))


@weights.register
def _patches(front: PatchesConfig, width: int) -> Weights:
    yield Weight(part=EMBEDDING, shape=(width, front.channels, front.patch, front.patch))
    if front.bias:
        yield Weight(part=EMBEDDING, shape=(width,))
    if front.n_prefix:
        yield Weight(part=EMBEDDING, shape=(front.n_prefix, width))


@weights.register
def _frames(front: FramesConfig, width: int) -> Weights:
    for i in range(len(front.strides)):
        yield Weight(part=EMBEDDING, shape=(width, width if i else front.n_mels, front.kernel))
        yield Weight(part=EMBEDDING, shape=(width,))


@weights.register
def _stack(config: StackConfig, d_model: int) -> Weights:
    """An embedding, the blocks that have weights of their own, and what serves all of them."""
    yield from weights(config.embed, d_model)
    owners = config.share or tuple(range(len(config.blocks)))
    for i, block in enumerate(config.blocks):
        if owners[i] == i:
            name = f"layers.{i}" if owners.count(i) == 1 else None
            yield from (replace(weight, block=name) for weight in _block(block, d_model))
    yield from _relative(config)
    yield from _norm(config.norm, d_model)


def _relative(config: StackConfig) -> Weights:
    """One table serves all layers of a stack (Raffel 2020, section 2.1)."""
    for op, kept in ((block.mixer.op, block.mixer.kept) for block in config.blocks):
        if isinstance(op, AttentionConfig) and isinstance(op.positions, RelativeBiasConfig):
            n_heads = op.n_heads if kept is None else kept.of
            split = 1 if heads_stand_apart(op) else None
            yield Weight(part=ATTENTION, shape=(op.positions.n_buckets, n_heads), split=split)
            return


def _transform(config: TransformConfig | None, n_in: int) -> Weights:
    if config is None:
        return
    yield from _linear(HEADS, n_in, config.width, config.bias, matrix=False)
    yield from _norm(config.norm, config.width, HEADS)


def transformed(config: TransformConfig | None, n_in: int) -> int:
    """How wide a vector is behind a transform that there may be."""
    return n_in if config is None else config.width


def _heads(heads: HeadsConfig, config: TransformerConfig) -> Weights:
    d_model = config.d_model
    if heads.tokens is not None:
        yield from _transform(heads.tokens.transform, d_model)
        if not heads.tokens.tie:
            width = transformed(heads.tokens.transform, d_model)
            yield Weight(part=HEADS, shape=(config.vocab_size, width))
        if heads.tokens.bias:
            yield Weight(part=HEADS, shape=(config.vocab_size,))
    d_pool = d_model
    if heads.pool is not None:
        yield from _transform(heads.pool.transform, d_model)
        d_pool = transformed(heads.pool.transform, d_model)
    for _, head in heads.labels:
        d_in = d_pool if head.at == "pool" else d_model
        yield from _transform(head.transform, d_in)
        yield from _linear(HEADS, transformed(head.transform, d_in), head.n_labels, head.bias, matrix=False)
    if heads.contacts:
        ops = [block.mixer.op for block in config.stack.blocks]
        n_maps = sum(op.n_heads for op in ops if isinstance(op, AttentionConfig))
        yield from _linear(HEADS, n_maps, 1, True, matrix=False)


def model_weights(config: TransformerConfig | TwoTowersConfig) -> list[Weight]:
    """Every tensor that loading allocates, once.

    Raises:
        ClearheadError: the config has a part that nothing is known of.
    """
    if isinstance(config, TwoTowersConfig):
        text, image = _within("text", model_weights(config.text)), _within("image", model_weights(config.image))
        return [*text, *image, Weight(part=HEADS, shape=())]
    found = list(_stack(config.stack, config.d_model))
    if config.encoder is not None and config.decoder is not None:
        theirs = _within("encoder", _stack(config.encoder, config.d_model))
        if config.share_tokens and isinstance(config.encoder.embed.front, TokensConfig):
            theirs = theirs[1:]  # the table of tokens, which is the decoder's
        found += theirs
    return [*found, *_heads(config.heads, config)]


def _within(name: str, found: Iterable[Weight]) -> list[Weight]:
    """The weights of a model's part, whose blocks lie below it."""
    return [replace(w, block=None if w.block is None else f"{name}.{w.block}") for w in found]
