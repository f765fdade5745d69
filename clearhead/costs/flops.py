"""Floating-point operations of a pass, from a config alone.

Counted are products of matrices and convolutions, two for a multiplication and its addition, and nothing for what goes
number by number (norms, activations, softmax): what torch's FlopCounterMode counts, to which this is held exactly, on
the reference backend. The gradient of a product is two products of its size, one a factor; where a factor is what the
model is given to read, it is one.

A product with weights grows with the number of tokens and is linear here, as a scan is. Attention's own two products
are quadratic, 2 T S (K + V) a head for T queries and S keys: `quadratic` is what the reference computes, every query
with every key, and `needed` what the mask leaves of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import singledispatch
from math import prod
from typing import Any

from clearhead.config import (
    AdditiveAttentionConfig,
    AttentionConfig,
    EmbedConfig,
    ExpertsConfig,
    FeedForwardConfig,
    FramesConfig,
    HeadsConfig,
    KeptHeads,
    LatentAttentionConfig,
    Mamba2Config,
    MambaConfig,
    MaskConfig,
    PatchesConfig,
    RecurrentConfig,
    StackConfig,
    TokensConfig,
    TransformConfig,
    TransformerConfig,
)
from clearhead.costs.names import (
    ATTENTION,
    EMBEDDING,
    EXPERTS,
    FEED_FORWARD,
    HEADS,
    RECURRENCE,
    ROUTER,
    SCAN,
    not_understood,
)
from clearhead.costs.weights import gate_numbers, made_widths, mamba2_channels, recurrent_input, transformed
from clearhead.ops.scan import CHUNK, SEGMENT, chunk_size


@dataclass(frozen=True)
class Work:
    """Operations of one part."""

    linear: int = 0
    """Products with weights, and scans: they grow with the number of tokens."""
    quadratic: int = 0
    """Queries with keys, and patterns with values, as the reference computes them: every query with every key."""
    needed: int = 0
    """Of these, what the mask leaves: about half where it is causal."""

    def __add__(self, other: Work) -> Work:
        return Work(self.linear + other.linear, self.quadratic + other.quadratic, self.needed + other.needed)


@dataclass(frozen=True)
class Flops:
    """Operations of a pass, by part."""

    parts: dict[str, Work]
    rule: int
    """The rule of thumb: 2 N D for a pass and 6 N D for a step of training, of D tokens and the N parameters that work
    on each (Kaplan 2020, section 2.1, who leave out embeddings; here they are in, as for Chinchilla and Llama)."""

    @property
    def linear(self) -> int:
        """Products with weights, and scans."""
        return sum(part.linear for part in self.parts.values())

    @property
    def quadratic(self) -> int:
        """Attention's own products, every query with every key."""
        return sum(part.quadratic for part in self.parts.values())

    @property
    def total(self) -> int:
        """As the reference computes it, and torch's counter counts it."""
        return self.linear + self.quadratic

    @property
    def needed(self) -> int:
        """The total of a kernel that skips what masks hide."""
        return self.linear + sum(part.needed for part in self.parts.values())


@dataclass(frozen=True, kw_only=True)
class Run:
    """One pass over `batch` texts of `tokens` new tokens each."""

    batch: int
    tokens: int
    context: int = 0
    """How many tokens of each were read before, and are kept."""
    source: int = 0
    """How many tokens the source of each has, where there is one; it is read when `context` is 0."""
    training: bool = False
    """With the gradients of everything."""

    def product(self, n_rows: int, n_in: int, n_out: int, gradients: int = 2) -> int:
        """(n_rows, n_in) by (n_in, n_out), and in training so many gradients of that size."""
        return 2 * n_rows * n_in * n_out * (1 + gradients * self.training)

    @property
    def rows(self) -> int:
        """Tokens of all texts."""
        return self.batch * self.tokens

    def of_source(self) -> Run:
        """The pass of the encoder beside."""
        return replace(self, tokens=self.source, context=0, source=0)


Parts = Iterator[tuple[str, Work]]


@singledispatch
def work(config: Any, d_model: int, run: Run, kept: KeptHeads | None = None) -> Parts:
    """What a part takes, by name, in a stream of `d_model` numbers. `kept`: which heads are left of attention's.

    Raises:
        ClearheadError: nothing is known of such a part.
    """
    raise not_understood(config)


# ---- mixers


def reach(mask: MaskConfig, run: Run) -> int:
    """How many keys are there for the queries of a pass: all so far, or those that a window keeps."""
    every = run.context + run.tokens
    return every if mask.window is None or mask.kind == "full" else min(every, run.tokens + mask.window - 1)


def seen(mask: MaskConfig, run: Run) -> int:
    """How many pairs of a query and a key the mask leaves, in one text."""
    n, before = run.tokens, run.context
    if mask.kind == "full":
        if mask.window is None:
            return n * (before + n)
        # The diagonal, and on either side of it one diagonal a step.
        far = min(mask.window, n - 1)
        return n + 2 * (far * n - far * (far + 1) // 2)
    if mask.window is None:
        return n * before + n * (n + 1) // 2
    # Query i sees before + i + 1 keys until that is more than the window.
    rising = min(n, max(0, mask.window - before))
    return rising * before + rising * (rising + 1) // 2 + (n - rising) * mask.window


def _attends(run: Run, n_heads: int, widths: int, n_keys: int, n_seen: int) -> Work:
    """Queries with keys and patterns with values, whose widths together are `widths`."""
    a_cell = run.product(run.batch * n_heads, 1, widths)
    return Work(quadratic=a_cell * run.tokens * n_keys, needed=a_cell * n_seen)


@work.register
def _attention(op: AttentionConfig, d_model: int, run: Run, kept: KeptHeads | None = None) -> Parts:
    """Self-attention: four products with weights, and two of its own (Vaswani 2017, section 3.2)."""
    yield from _projections(op, d_model, run, kept, run.rows)
    yield ATTENTION, _attends(run, op.n_heads, 2 * op.d_head, reach(op.mask, run), seen(op.mask, run))


def cross_attention(op: AttentionConfig, d_model: int, run: Run, kept: KeptHeads | None = None) -> Parts:
    """Queries of the text, keys and values of the source, which are made once: with the first tokens."""
    yield from _projections(op, d_model, run, kept, 0 if run.context else run.batch * run.source)
    yield ATTENTION, _attends(run, op.n_heads, 2 * op.d_head, run.source, run.tokens * run.source)


def _projections(op: AttentionConfig, d_model: int, run: Run, kept: KeptHeads | None, n_sources: int) -> Parts:
    made_q, made_k = made_widths(op, kept)
    queries = run.product(run.rows, d_model, made_q)
    keys = run.product(n_sources, d_model, made_k)
    values = run.product(n_sources, d_model, op.n_kv_heads * op.d_head)
    out = run.product(run.rows, op.n_heads * op.d_head, d_model)
    yield ATTENTION, Work(queries + keys + values + out)


@work.register
def _latent_attention(op: LatentAttentionConfig, d_model: int, run: Run, kept: KeptHeads | None = None) -> Parts:
    """DeepSeek-AI 2024, DeepSeek-V2, section 2.1. Keys and values are written out of what is kept of all tokens, or,
    where that is less, queries go to the latent's space and keys are never made (section 2.1.2).
    """
    w, h = op.widths, op.n_heads
    d_q = h * (w.nope + w.rope)
    if w.q is None:
        queries = run.product(run.rows, d_model, d_q)
    else:
        queries = run.product(run.rows, d_model, w.q) + run.product(run.rows, w.q, d_q)
    n_keys = run.context + run.tokens
    n_seen = seen(op.mask, run)
    if absorbs(op, run.tokens, n_keys):
        both = run.product(run.rows * h, w.nope, w.kv) + run.product(run.rows * h, w.kv, w.value)
        attends = _attends(run, h, 2 * (w.kv + w.rope), n_keys, n_seen)
    else:
        both = run.product(run.batch * n_keys, w.kv, h * (w.nope + w.value))
        attends = _attends(run, h, w.nope + w.rope + w.value, n_keys, n_seen)
    latent = run.product(run.rows, d_model, w.kv + w.rope)
    out = run.product(run.rows, h * w.value, d_model)
    yield ATTENTION, Work(queries + latent + both + out) + attends


def absorbs(op: LatentAttentionConfig, n_queries: int, n_keys: int) -> bool:
    """Whether the form without keys and values takes fewer multiplications, which is then the one that runs."""
    w = op.widths
    absorbed = n_queries * (2 * w.kv + w.rope)
    readable = n_queries * (w.nope + w.rope + w.value) + w.kv * (w.nope + w.value)
    return n_keys > n_queries and absorbed < readable


@work.register
def _mamba(op: MambaConfig, d_model: int, run: Run, kept: None = None) -> Parts:
    """Gu and Dao 2023: four products with weights, and what each token reads of the state. The gradient of that has
    three products: of the state, of what is written, and of what is read.
    """
    f = op.d_inner
    projections = run.product(run.rows, d_model, 2 * f) + run.product(run.rows, f, op.dt_rank + 2 * op.d_state)
    projections += run.product(run.rows, op.dt_rank, f) + run.product(run.rows, f, d_model)
    scanned = run.tokens if run.tokens == 1 else sum(map(whole_chunks, pieces(run.tokens, SEGMENT)))
    gradients = 2 if run.tokens == 1 else 3
    yield SCAN, Work(projections + run.product(run.batch * scanned, op.d_state, f, gradients))


def pieces(n_tokens: int, size: int) -> list[int]:
    """How many tokens each piece of a text has that is cut every `size`."""
    return [min(size, n_tokens - first) for first in range(0, n_tokens, size)]


def whole_chunks(n_tokens: int) -> int:
    """Tokens that are scanned in place of so many: chunks are filled up."""
    size = chunk_size(n_tokens)
    return -(-n_tokens // size) * size


@work.register
def _mamba2(op: Mamba2Config, d_model: int, run: Run, kept: None = None) -> Parts:
    """Dao and Gu 2024, section 6: within a chunk each token reads each other as in attention, and from chunk to chunk
    there is the state. The first has none before it, and nobody reads what the last leaves.
    """
    d_inner, n_state = op.n_heads * op.d_head, op.d_state
    projections = run.product(run.rows, d_model, d_inner + mamba2_channels(op) + op.n_heads)
    projections += run.product(run.rows, d_inner, d_model)
    if run.tokens == 1:
        yield SCAN, Work(projections + run.product(run.batch, d_inner, n_state))
        return
    scan, chunks = 0, pieces(run.tokens, CHUNK)
    for i, size in enumerate(chunks):
        n = run.batch * size
        scan += run.product(n * op.n_groups, n_state, size)
        scan += run.product(n * op.n_heads, size, op.d_head)
        scan += run.product(n, n_state, d_inner, gradients=1 if i == 0 else 2)
        scan += run.product(n, n_state, d_inner, gradients=0 if i == len(chunks) - 1 else 2)
    yield SCAN, Work(projections + scan)


@work.register
def _recurrent(op: RecurrentConfig, d_model: int, run: Run, kept: None = None) -> Parts:
    """Two products a token and cell. A first vector of zeros has no gradient. The cell of 1997 runs as one whose
    forget gate is open; with additive attention every step asks every token of the source (Bahdanau 2014).
    """
    f, n_ways, of_source = op.d_hidden, 1 + op.both_ways, 0 if run.context else run.batch
    attends = isinstance(op.source, AdditiveAttentionConfig)
    c = 4 * f if op.cell == "lstm_1997" and not attends else gate_numbers(op)
    found = run.product(run.rows, recurrent_input(op, d_model), n_ways * c) + run.product(run.rows, f, n_ways * c)
    if op.source is not None:
        found += run.product(of_source, d_model, f)
    elif run.training:
        found -= run.product(run.batch, f, n_ways * c, gradients=0)
    if n_ways * f != d_model:
        found += run.product(run.rows, n_ways * f, d_model)
    yield RECURRENCE, Work(found)
    if isinstance(op.source, AdditiveAttentionConfig):
        a = op.source.d_attention
        projections = run.product(run.rows, f, a) + run.product(of_source * run.source, d_model, a)
        cells = run.product(run.rows * run.source, 1, a + d_model)
        yield ATTENTION, Work(projections, quadratic=cells, needed=cells)


# ---- feed-forwards


@work.register
def _feed_forward(op: FeedForwardConfig, d_model: int, run: Run, kept: None = None) -> Parts:
    """Two products a token, or three with a gate."""
    yield FEED_FORWARD, Work((2 + op.gated) * run.product(run.rows, d_model, op.d_ff))


@work.register
def _experts(op: ExpertsConfig, d_model: int, run: Run, kept: None = None) -> Parts:
    """The router for every token, and for each those of the experts that it goes to."""
    yield ROUTER, Work(run.product(run.rows, d_model, op.n_experts))
    each = (2 + op.expert.gated) * run.product(run.rows, d_model, op.expert.d_ff)
    yield EXPERTS, Work(op.n_chosen * each)
    if op.shared is not None:
        yield from _feed_forward(op.shared, d_model, run)


# ---- what stands around them


@work.register
def _embedding(config: EmbedConfig, d_model: int, run: Run) -> Parts:
    width = config.width or d_model
    yield from work(config.front, width, run)
    if config.width is not None:
        yield EMBEDDING, Work(run.product(run.rows, width, d_model))


@work.register
def _tokens(front: TokensConfig, width: int, run: Run) -> Parts:
    """A row of a table is looked up."""
    return iter(())


@work.register
def _patches(front: PatchesConfig, width: int, run: Run) -> Parts:
    """A picture has no gradient."""
    n_patches = run.batch * prod(front.grid)
    yield EMBEDDING, Work(run.product(n_patches, front.channels * front.patch**2, width, gradients=1))


@work.register
def _frames(front: FramesConfig, width: int, run: Run) -> Parts:
    """Each convolution keeps one place in `stride`; a spectrogram has no gradient."""
    n_slots = run.tokens
    for i in reversed(range(len(front.strides))):
        n_in, gradients = (width, 2) if i else (front.n_mels, 1)
        yield EMBEDDING, Work(run.product(run.batch * n_slots, n_in * front.kernel, width, gradients))
        n_slots *= front.strides[i]


@work.register
def _stack(config: StackConfig, d_model: int, run: Run) -> Parts:
    yield from work(config.embed, d_model, run)
    for block in config.blocks:
        yield from work(block.mixer.op, d_model, run, block.mixer.kept)
        if block.cross is not None:
            assert isinstance(block.cross.op, AttentionConfig)  # the config sees to it
            yield from cross_attention(block.cross.op, d_model, run, block.cross.kept)
        if block.ffn is not None:
            yield from work(block.ffn.op, d_model, run)


def _transform(config: TransformConfig | None, n_in: int, n_rows: int, run: Run) -> int:
    return 0 if config is None else run.product(n_rows, n_in, config.width)


def _heads(heads: HeadsConfig, config: TransformerConfig, run: Run, n_read: int) -> Parts:
    """What reads the finished stream: all of it, its last `n_read` slots, or one place a text."""
    d_model, found = config.d_model, 0
    if heads.tokens is not None:
        width = transformed(heads.tokens.transform, d_model)
        if heads.tokens.tie:
            width = config.stack.embed.width or d_model
        found += _transform(heads.tokens.transform, d_model, run.batch * n_read, run)
        found += run.product(run.batch * n_read, width, config.vocab_size)
    d_pool = d_model
    if heads.pool is not None:
        found += _transform(heads.pool.transform, d_model, run.batch, run)
        d_pool = transformed(heads.pool.transform, d_model)
    for _, head in heads.labels:
        d_in, n_rows = (d_pool if head.at == "pool" else d_model), (run.rows if head.at == "every" else run.batch)
        found += _transform(head.transform, d_in, n_rows, run)
        found += run.product(n_rows, transformed(head.transform, d_in), head.n_labels)
    yield HEADS, Work(found)


def model_work(config: TransformerConfig, run: Run, n_read: int) -> Parts:
    """Everything that one pass takes, with logits of the last `n_read` slots; the encoder beside runs where its source
    was not read before.
    """
    if config.encoder is not None and config.decoder is not None and run.context == 0:
        yield from _stack(config.encoder, config.d_model, run.of_source())
    yield from _stack(config.stack, config.d_model, run)
    yield from _heads(config.heads, config, run, n_read)


# ---- what has to wait


@singledispatch
def sequential_steps(op: Any, n_tokens: int, one_by_one: bool = False) -> int:
    """How many steps of a mixer, one after another, a text takes that is there in full (Vaswani 2017, table 1): 1 for
    attention; a scan in chunks goes through the tokens of a chunk twice and through the chunks once, and as a
    recurrence, `one_by_one`, through all tokens, as a recurrent network always does.

    Raises:
        ClearheadError: nothing is known of such a mixer.
    """
    raise not_understood(op)


@sequential_steps.register(AttentionConfig)
@sequential_steps.register(LatentAttentionConfig)
def _at_once(op: AttentionConfig | LatentAttentionConfig, n_tokens: int, one_by_one: bool = False) -> int:
    return 1


@sequential_steps.register
def _in_chunks(op: MambaConfig, n_tokens: int, one_by_one: bool = False) -> int:
    if one_by_one:
        return n_tokens
    return sum(2 * chunk_size(n) + -(-n // chunk_size(n)) for n in pieces(n_tokens, SEGMENT))


@sequential_steps.register
def _one_by_one(op: RecurrentConfig, n_tokens: int, one_by_one: bool = False) -> int:
    return n_tokens


@sequential_steps.register
def _chunk_by_chunk(op: Mamba2Config, n_tokens: int, one_by_one: bool = False) -> int:
    """Within a chunk nothing waits."""
    return n_tokens if one_by_one else len(pieces(n_tokens, CHUNK))
