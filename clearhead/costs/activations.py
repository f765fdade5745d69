"""What the forward pass of a training step keeps for its backward pass, from a config alone.

Each operation keeps what its gradient is made of, and a tensor that several keep is there once: a linear layer keeps
what it read, a norm too, an activation function its input or its result, a product both its factors. Attention that is
fused or goes by tiles keeps queries, keys, values, what comes out, and a number a row (Dao 2022, section 3.1); the
reference, which trains where a row of scores is dropped from, soft-capped or biased by learned numbers and there are
few cells, keeps matrices of T x S. Memory is linear in the number of blocks; recomputed blocks keep what they read, and
one of them is there in full (Chen 2016, Training deep nets with sublinear memory cost).

This follows the operations that run here, in one width. Left out is what makes a percent or two: positions, tables of
angles, indices and bits of masks, and gradients on their way through one layer. Under autocast some things are kept in
both widths.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

from clearhead.config import (
    AdditiveAttentionConfig,
    AlibiConfig,
    AttentionConfig,
    BlockConfig,
    ClampedGate,
    EmbedConfig,
    ExpertsConfig,
    FeedForwardConfig,
    FramesConfig,
    KeptHeads,
    LatentAttentionConfig,
    Mamba2Config,
    MambaConfig,
    NormConfig,
    RecurrentConfig,
    RelativeBiasConfig,
    ScoresConfig,
    StackConfig,
    SublayerConfig,
    TransformConfig,
    TransformerConfig,
)
from clearhead.costs.flops import Run, pieces, whole_chunks
from clearhead.costs.names import (
    ATTENTION,
    EMBEDDING,
    EXPERTS,
    FEED_FORWARD,
    HEADS,
    NORMS,
    PARTS,
    RECURRENCE,
    ROUTER,
    SCAN,
    WORKING,
    not_understood,
)
from clearhead.costs.weights import gate_numbers, made_widths, mamba2_channels, recurrent_input
from clearhead.ops.attention_tiled import CELLS
from clearhead.ops.attention_tiled import TILE as TILE_SIDE
from clearhead.ops.backends import LARGE, SMALL
from clearhead.ops.losses import IN_CACHE, rows_at_once
from clearhead.ops.scan import CHUNK, NARROWEST, SEGMENT, TILE


@dataclass(frozen=True)
class Activations:
    """Bytes that a training step holds at its peak, beside weights, their gradients and the optimiser's state."""

    parts: dict[str, int]
    """By part, all layers together. `working` is what no gradient is made of: logits of some rows at a time, or the
    room in which a scan works."""

    @property
    def total(self) -> int:
        return sum(self.parts.values())


Parts = Iterator[tuple[str, int]]

OF_ACTIVATION = {"gelu": 1, "gelu_tanh": 1, "silu": 1, "quick_gelu": 2, "relu": 0, "relu_squared": 1, "tanh": 0}
"""What an activation function keeps beside its result, in tensors of its size: its input, or (ReLU, tanh) nothing."""


@singledispatch
def kept(op: Any, d_model: int, run: Run, heads: KeptHeads | None = None) -> Parts:
    """Numbers that a part keeps, with what it reads. `heads`: which are left of attention's.

    Raises:
        ClearheadError: nothing is known of such a part.
    """
    raise not_understood(op)


# ---- mixers


def _way(scores: ScoresConfig, positions: Any, dense: bool, cells: int) -> str:
    """Which attention trains (see `clearhead/ops/backends.py`)."""
    if scores.softcap is not None or scores.dropout > 0 or isinstance(positions, RelativeBiasConfig):
        return "reference" if cells <= SMALL else "tiled"
    return "tiled" if dense and cells >= LARGE else "fused"


@dataclass(frozen=True, kw_only=True)
class _Heads:
    """The shape of attention's own two products: T queries, S keys."""

    n: int
    n_kv: int
    d_key: int
    d_value: int
    n_keys: int


def _attended(heads: _Heads, scores: ScoresConfig, positions: Any, has_window: bool, run: Run) -> int:
    """Numbers kept by the product of queries and keys, and by the mix of values that the last projection reads."""
    rows, cells = run.rows, run.tokens * heads.n_keys
    way = _way(scores, positions, has_window or isinstance(positions, AlibiConfig), cells)
    queries, mixed = rows * heads.n * heads.d_key, rows * heads.n * heads.d_value
    of_keys = run.batch * heads.n_keys * heads.n_kv
    keys, values = of_keys * heads.d_key, of_keys * heads.d_value
    if way == "tiled":
        # What comes out lies head by head, and is copied to be projected.
        return queries + keys + values + 2 * mixed + rows * heads.n
    if way == "reference":
        matrices = 2 + (scores.dropout > 0) + (scores.softcap is not None)
        indices = 2 * cells if isinstance(positions, RelativeBiasConfig) else 0
        return queries + keys + values + mixed + run.batch * heads.n * cells * matrices + indices
    # The kernel wants keys and values of one width; a sink is one more key and one more dimension.
    width = max(heads.d_key, heads.d_value) + scores.sinks
    copied = mixed if width > heads.d_value else 0
    mask = cells if has_window else 0
    return 2 * rows * heads.n * width + 2 * of_keys * width + rows * heads.n + copied + mask


@kept.register
def _attention(op: AttentionConfig, d_model: int, run: Run, heads: KeptHeads | None = None) -> Parts:
    yield ATTENTION, run.rows * d_model
    made_q, made_k = made_widths(op, heads)
    yield NORMS, _of_heads(op, made_q, made_k, run.rows, run.rows)
    shape = _Heads(n=op.n_heads, n_kv=op.n_kv_heads, d_key=op.d_head, d_value=op.d_head, n_keys=run.tokens)
    yield ATTENTION, _attended(shape, op.scores, op.positions, op.mask.window is not None, run)


def _cross_attention(op: AttentionConfig, d_model: int, run: Run, heads: KeptHeads | None = None) -> Parts:
    """The source itself is kept once, whatever the number of layers that look at it."""
    yield ATTENTION, run.rows * d_model
    made_q, made_k = made_widths(op, heads)
    yield NORMS, _of_heads(op, made_q, made_k, run.rows, run.batch * run.source)
    shape = _Heads(n=op.n_heads, n_kv=op.n_kv_heads, d_key=op.d_head, d_value=op.d_head, n_keys=run.source)
    yield ATTENTION, _attended(shape, op.scores, None, False, run)


def _of_heads(op: AttentionConfig, made_q: int, made_k: int, n_queries: int, n_keys: int) -> int:
    """What the norms of queries and keys keep."""
    if op.qk_norm is None:
        return 0
    if op.qk_norm.over == "head":
        return n_queries * (made_q + op.n_heads) + n_keys * (made_k + op.n_kv_heads)
    return n_queries * (made_q + 1) + n_keys * (made_k + 1)


@kept.register
def _latent_attention(op: LatentAttentionConfig, d_model: int, run: Run, heads: KeptHeads | None = None) -> Parts:
    w, n = op.widths, run.rows
    yield ATTENTION, n * d_model
    if w.q is not None:
        yield NORMS, n * (w.q + 1)
        yield ATTENTION, n * w.q
    # Before the norm and after it, with the rotated key beside it.
    yield NORMS, n * (w.kv + w.rope + 1)
    yield ATTENTION, n * (w.kv + w.rope)
    h = op.n_heads
    shape = _Heads(n=h, n_kv=h, d_key=w.nope + w.rope, d_value=w.value, n_keys=run.tokens)
    yield ATTENTION, _attended(shape, op.scores, None, op.mask.window is not None, run)


@kept.register
def _mamba(op: MambaConfig, d_model: int, run: Run, heads: None = None) -> Parts:
    """The states are not kept but made again. A text that is no whole number of chunks is copied to fill it up."""
    n, f, selected = run.rows, op.d_inner, op.dt_rank + 2 * op.d_state
    yield SCAN, n * (d_model + 2 * f) + run.batch * (run.tokens + op.conv.width - 1) * f
    # Before and after the convolution's activation, before the step size's, and around the gate.
    yield SCAN, 6 * n * f + n * selected + run.batch * f * op.d_state + 2 * f * op.d_state
    scanned = sum(map(whole_chunks, pieces(run.tokens, SEGMENT)))
    yield SCAN, n * f if scanned == run.tokens else 2 * run.batch * scanned * (f + op.d_state)
    if op.inner_norm is not None:
        yield NORMS, n * (selected + 3)


@kept.register
def _mamba2(op: Mamba2Config, d_model: int, run: Run, heads: None = None) -> Parts:
    """Within a chunk the decays, the scores and their product are matrices, as in attention."""
    n, h, f, channels = run.rows, op.n_heads, op.n_heads * op.d_head, mamba2_channels(op)
    yield SCAN, n * (d_model + f + channels + h) + run.batch * (run.tokens + op.conv.width - 1) * channels
    yield SCAN, 2 * n * channels + 3 * n * h
    for size in pieces(run.tokens, CHUNK):
        matrices = (3 * h + op.n_groups) * size**2 + 3 * h * size
        vectors = 4 * size * (f + op.n_groups * op.d_state) + 2 * f * op.d_state
        yield SCAN, run.batch * (matrices + vectors)
    yield SCAN, 3 * n * f
    yield NORMS, n * f * (1 if op.n_groups == 1 else 2) + n * op.n_groups


IN_LOOP = {"simple": 2.5, "gru": 9.5, "lstm": 8.5, "lstm_1997": 6.5}
"""What the loop in which attention to a source stands keeps of a token, in vectors of a cell's width."""


@kept.register
def _recurrent(op: RecurrentConfig, d_model: int, run: Run, heads: None = None) -> Parts:
    """Attention to a source keeps a vector for each pair of a token and one of the source (Bahdanau 2014)."""
    n, f, read = run.rows, op.d_hidden, recurrent_input(op, d_model)
    if isinstance(op.source, AdditiveAttentionConfig):
        a = op.source.d_attention
        yield RECURRENCE, n * d_model + int(n * f * IN_LOOP[op.cell])
        yield ATTENTION, n * (d_model + run.source * (1 + a)) + run.batch * run.source * a
        return
    n_ways = 1 + op.both_ways
    yield RECURRENCE, n * n_ways * (read + _by_kernel(op, read)) + n * f * n_ways * op.both_ways


def _by_kernel(op: RecurrentConfig, read: int) -> int:
    """What torch's kernel keeps of a token beside the token itself; oneDNN, with which an LSTM runs, a workspace."""
    f = op.d_hidden
    match op.cell:
        case "simple":
            return 2 * f
        case "gru":
            return 8 * f
    return int(10.5 * f) + 6 * max(read, f)


# ---- feed-forwards


def _inside(op: FeedForwardConfig, n_rows: int) -> int:
    """What is kept between a feed-forward's first and last matrix."""
    if isinstance(op.activation, ClampedGate):
        tensors = 7  # both before and after clamping, their product, the sigmoid, and the result
    else:
        tensors = OF_ACTIVATION[op.activation] + 1 + 2 * op.gated
    if op.dropout > 0:
        keeps_result = not op.gated and OF_ACTIVATION.get(str(op.activation)) == 0
        tensors += 1 + keeps_result
    return tensors * n_rows * op.d_ff


@kept.register
def _feed_forward(op: FeedForwardConfig, d_model: int, run: Run, heads: None = None) -> Parts:
    yield FEED_FORWARD, run.rows * d_model + _inside(op, run.rows)


@kept.register
def _experts(op: ExpertsConfig, d_model: int, run: Run, heads: None = None) -> Parts:
    """Each token is copied for each of its experts, and so is what they say."""
    yield ROUTER, run.rows * (d_model + op.n_experts)
    n_slots = run.rows * op.n_chosen
    yield EXPERTS, 2 * n_slots * d_model + _inside(op.expert, n_slots)
    if op.shared is not None:
        yield FEED_FORWARD, _inside(op.shared, run.rows)


# ---- what stands around them


def _norm(config: NormConfig | None, n_rows: int, width: int) -> int:
    """What it read, and its size, or mean and size."""
    return 0 if config is None else n_rows * (width + (2 if config.kind == "layer" else 1))


def _sublayer(config: SublayerConfig, found: Parts, d_model: int, run: Run) -> Parts:
    yield from found
    yield NORMS, sum(_norm(norm, run.rows, d_model) for norm in (config.pre, config.out, config.after))
    if config.dropout > 0:
        yield NORMS, run.rows * d_model
    op = config.op
    if isinstance(op, RecurrentConfig) and not config.residual and op.d_hidden * (1 + op.both_ways) == d_model:
        # What takes the place of the stream is what the next layer reads.
        yield RECURRENCE, -run.rows * d_model


Moment = tuple[list[tuple[str, int]], int]
"""What a sub-layer keeps, and how much room its backward pass needs beside."""


def moments(block: BlockConfig, d_model: int, run: Run) -> Iterator[Moment]:
    """The two or three corrections of a block in order, each with what it reads."""
    mixer, cross, ffn = block.mixer, block.cross, block.ffn
    stream = run.rows * d_model
    found = kept(mixer.op, d_model, run, mixer.kept)
    yield list(_sublayer(mixer, found, d_model, run)), 2 * stream + room(mixer.op, run)
    if cross is not None:
        assert isinstance(cross.op, AttentionConfig)  # the config sees to it
        found = _cross_attention(cross.op, d_model, run, cross.kept)
        needs = _attention_room(cross.op, run, run.source)
        yield list(_sublayer(cross, found, d_model, run)), 2 * stream + needs
    if ffn is not None:
        parts = list(_sublayer(ffn, kept(ffn.op, d_model, run), d_model, run))
        if block.parallel:
            parts.append((NORMS, -stream))  # both read one stream
        yield parts, 2 * stream + room(ffn.op, run)


def _embedding(config: EmbedConfig, d_model: int, run: Run) -> Parts:
    width, front = config.width or d_model, config.front
    if isinstance(front, FramesConfig):
        n_slots, extra = run.tokens, OF_ACTIVATION[front.activation]
        for i in reversed(range(len(front.strides))):
            is_last = i == len(front.strides) - 1
            yield EMBEDDING, run.batch * n_slots * width * (extra + (not is_last))
            n_slots *= front.strides[i]
    yield NORMS, _norm(config.norm, run.rows, width)
    if config.dropout > 0:
        yield EMBEDDING, run.rows * width
    if config.width is not None:
        yield EMBEDDING, run.rows * width


def _slopes(config: StackConfig, run: Run) -> int:
    """The matrix of ALiBi, of which all layers have one between them."""
    ops = [block.mixer.op for block in config.blocks]
    heads = [op.n_heads for op in ops if isinstance(op, AttentionConfig) and isinstance(op.positions, AlibiConfig)]
    return max(heads, default=0) * run.tokens**2 if run.tokens**2 < LARGE else 0


def _around(config: StackConfig, d_model: int, run: Run) -> Parts:
    """What is kept of a stack beside its blocks."""
    yield from _embedding(config.embed, d_model, run)
    yield NORMS, _norm(config.norm, run.rows, d_model)
    yield ATTENTION, _slopes(config, run)
    if run.source:
        yield ATTENTION, run.batch * run.source * d_model


def _sum(found: Iterable[tuple[str, int]]) -> int:
    return sum(numbers for _, numbers in found)


def _transform(config: TransformConfig | None, n_rows: int, d_in: int) -> int:
    if config is None:
        return 0
    inside = OF_ACTIVATION[config.activation] if config.activation is not None else 0
    return n_rows * (d_in + inside * config.width) + _norm(config.norm, n_rows, config.width)


def _heads(config: TransformerConfig, run: Run) -> Parts:
    """A token head keeps no logits but the gradient of what it read, worked out on the way (see `ops/losses.py`)."""
    heads, d_model = config.heads, config.d_model
    if heads.tokens is not None:
        width = d_model if heads.tokens.transform is None else heads.tokens.transform.width
        yield HEADS, _transform(heads.tokens.transform, run.rows, d_model) + run.rows * width
    if heads.pool is not None:
        yield HEADS, _transform(heads.pool.transform, run.batch, d_model)
    for _, head in heads.labels:
        n_rows = run.rows if head.at == "every" else run.batch
        yield HEADS, _transform(head.transform, n_rows, d_model) + n_rows * d_model


def _logits(config: TransformerConfig, run: Run) -> Parts:
    """Logits of some rows at a time, and probabilities of a few of them."""
    if config.heads.tokens is not None:
        n_words = config.vocab_size
        at_once = min(run.rows, rows_at_once(n_words, 4)) * n_words
        yield WORKING, at_once + min(at_once, IN_CACHE)


# ---- room to work in


@singledispatch
def room(op: Any, run: Run) -> int:
    """Numbers that a part's backward pass needs beside what was kept: gradients on their way, and tiles.

    Raises:
        ClearheadError: nothing is known of such a part.
    """
    raise not_understood(op)


@room.register
def _feed_forward_room(op: FeedForwardConfig, run: Run) -> int:
    return op.gated * run.rows * op.d_ff


@room.register
def _experts_room(op: ExpertsConfig, run: Run) -> int:
    return (1 + op.expert.gated) * run.rows * op.n_chosen * op.expert.d_ff


@room.register
def _mamba_room(op: MambaConfig, run: Run) -> int:
    """Four tiles of states, each of as many channels, and then rows, as fit into `TILE` (on one thread)."""
    a_channel = max(map(whole_chunks, pieces(run.tokens, SEGMENT))) * op.d_state
    width = min(op.d_inner, max(NARROWEST, TILE // a_channel // NARROWEST * NARROWEST))
    tile = a_channel * width * min(run.batch, max(1, TILE // (a_channel * width)))
    return 4 * tile + 4 * run.rows * op.d_inner


@room.register
def _mamba2_room(op: Mamba2Config, run: Run) -> int:
    """Gradients of the whole text, to which each chunk adds its own in a tensor as large."""
    return run.rows * (op.n_heads * op.d_head + 2 * mamba2_channels(op))


@room.register
def _recurrent_room(op: RecurrentConfig, run: Run) -> int:
    """Gradients of all gates; in a loop, of every step and of their sum."""
    return run.rows * gate_numbers(op) * (3 if isinstance(op.source, AdditiveAttentionConfig) else 1)


@room.register
def _self_attention_room(op: AttentionConfig, run: Run) -> int:
    return _attention_room(op, run, run.tokens)


def _attention_room(op: AttentionConfig, run: Run, n_keys: int) -> int:
    gradients = (run.rows * op.n_heads + 2 * run.batch * n_keys * op.n_kv_heads) * op.d_head
    return gradients + _tiles(op, op.positions, n_keys, run)


@room.register
def _latent_room(op: LatentAttentionConfig, run: Run) -> int:
    gradients = 3 * run.rows * op.n_heads * (op.widths.nope + op.widths.rope)
    return gradients + _tiles(op, None, run.tokens, run)


def _tiles(op: AttentionConfig | LatentAttentionConfig, positions: Any, n_keys: int, run: Run) -> int:
    """Where attention goes by tiles, matrices of a tile of all heads, of as many rows as fit into `CELLS`; where it is
    the reference, gradients of whole matrices.
    """
    scores, all_cells = op.scores, run.tokens * n_keys
    way = _way(scores, positions, op.mask.window is not None or isinstance(positions, AlibiConfig), all_cells)
    if way == "fused":
        return 0
    if way == "reference":
        return run.batch * op.n_heads * all_cells
    height = min(run.tokens, TILE_SIDE)
    cells = op.n_heads * height * min(n_keys, TILE_SIDE**2 // height)
    matrices = 2 + 2 * (scores.dropout > 0) + 2 * (scores.softcap is not None)
    return matrices * cells * min(run.batch, max(1, CELLS // cells))


# ---- the whole model


def activation_bytes(models: Sequence[tuple[TransformerConfig, Run]], width: int, recompute: bool) -> Activations:
    """At the moment of most: when the loss is worked out, or when the backward pass is in one of the sub-layers, and
    has let go of all behind it. Of several models, that run one after another, together.
    """
    before: list[tuple[str, int]] = []
    found: list[list[tuple[str, int]]] = []
    for config, run in models:
        for stack, its_run in _in_order(config, run):
            before += _around(stack, config.d_model, its_run)
            for block in stack.blocks:
                inside: list[tuple[str, int]] = []
                for parts, needs in moments(block, config.d_model, its_run):
                    inside += parts
                    found.append([*before, *inside, (WORKING, needs)])
                before = [*before, *([(NORMS, its_run.rows * config.d_model)] if recompute else inside)]
        before += _heads(config, run)
        found.append([*before, *_logits(config, run)])
    return _told(max(found, key=_sum), width)


def _in_order(config: TransformerConfig, run: Run) -> list[tuple[StackConfig, Run]]:
    """The stacks of a model as they run."""
    beside = config.encoder if config.decoder is not None else None
    first = [] if beside is None else [(beside, run.of_source())]
    return [*first, (config.stack, run)]


def _told(found: Iterable[tuple[str, int]], width: int) -> Activations:
    by_part: defaultdict[str, int] = defaultdict(int)
    for part, numbers in found:
        by_part[part] += width * numbers
    return Activations({part: by_part[part] for part in (*PARTS, WORKING) if by_part[part]})
