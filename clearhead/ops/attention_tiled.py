"""Exact attention a tile at a time, with an online softmax: memory grows with the length, not with its square.

FlashAttention's algorithm in the open (Dao 2022, algorithms 1 and 4; Milakov 2018 for the online softmax). The forward
pass keeps the output and one number per row, the logarithm of its softmax's denominator; the backward pass works out
each tile again from it. Tiles in which nothing may be seen are skipped, and where all may be seen no mask is made.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from clearhead.ops.attention import MINUS_INFINITY, accumulation_dtype, bias_term
from clearhead.ops.biases import Bias
from clearhead.ops.masks import BoundMask

TILE = 256
"""Tiles are 256 queries by 256 keys: a quarter of a megabyte a head in float32."""
CELLS = 2**20
"""Rows of the batch are worked on together while their tiles have no more cells than this (4 MB of float32)."""


@dataclass(frozen=True)
class Options:
    """What is asked beside the tensors that gradients reach."""

    mask: BoundMask
    scale: float
    bias: Bias | None
    softcap: float | None
    dropout: float
    seed: int
    """Of the random numbers of dropout, which the backward pass draws again."""


def attention_tiled(
    q_BHTK: Float[Tensor, "B H T K"],
    k_BGSK: Float[Tensor, "B G S K"],
    v_BGSV: Float[Tensor, "B G S V"],
    mask: BoundMask,
    *,
    scale: float,
    bias: Bias | None = None,
    softcap: float | None = None,
    sinks_H: Float[Tensor, "H"] | None = None,
    dropout: float = 0.0,
) -> Float[Tensor, "B H T V"]:
    """Exact attention in tiles, forward and backward: the backend "tiled"."""
    seed = int(torch.randint(2**62, ()).item()) if dropout > 0 else 0
    options = Options(mask, scale, bias, softcap, dropout, seed)
    trained = () if bias is None else bias.tensors()
    z_BHTV: Tensor = _Tiled.apply(options, q_BHTK, k_BGSK, v_BGSV, sinks_H, *trained)  # type: ignore[no-untyped-call]
    return z_BHTV


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx, options: Options, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None, *trained: Tensor
    ) -> Tensor:
        z_BHTV = q.new_empty(*q.shape[:3], v.shape[-1])
        lse_BHT = q.new_empty(q.shape[:3], dtype=accumulation_dtype(q.dtype))
        for tiles in Tiles.over_batch(options, q, k, v):
            for q_slots in tiles.query_slots:
                _forward(tiles, q_slots, sinks, z_BHTV, lse_BHT)
        ctx.save_for_backward(q, k, v, sinks, z_BHTV, lse_BHT, *trained)  # type: ignore[arg-type]
        ctx.options = options  # type: ignore[attr-defined]
        return z_BHTV

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, grad_BHTV: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, sinks, z_BHTV, lse_BHT, *trained = ctx.saved_tensors  # type: ignore[attr-defined]
        options: Options = ctx.options  # type: ignore[attr-defined]
        wide = lse_BHT.dtype
        gradients = Gradients(
            q=torch.zeros_like(q, dtype=wide),
            k=torch.zeros_like(k, dtype=wide),
            v=torch.zeros_like(v, dtype=wide),
            sinks=None if sinks is None else torch.zeros_like(sinks, dtype=wide),
            trained=[torch.zeros_like(tensor, dtype=wide) if tensor.requires_grad else None for tensor in trained],
        )
        for tiles in Tiles.over_batch(options, q, k, v):
            _backward(tiles, sinks, z_BHTV, lse_BHT, grad_BHTV, gradients)
        gradients.q.mul_(options.scale)
        found = [gradients.q, gradients.k, gradients.v, gradients.sinks, *gradients.trained]
        asked = (q, k, v, sinks, *trained)
        return None, *(None if g is None else g.to(to.dtype) for g, to in zip(found, asked, strict=True))


@dataclass(frozen=True)
class Gradients:
    """What the backward pass sums up, in float32 at least."""

    q: Tensor
    k: Tensor
    v: Tensor
    sinks: Tensor | None
    trained: list[Tensor | None]


class Tiles:
    """The tiles of some rows of the batch: slices of queries and keys, and the scores of each pair.

    Matrices are (b G, n t, s): n query heads share a key head, and their queries lie under each other.
    """

    def __init__(self, options: Options, q: Tensor, k: Tensor, v: Tensor, rows: slice) -> None:
        self.options, self.rows = options, rows
        self.dtype = accumulation_dtype(q.dtype)
        self.q, self.k, self.v = q[rows], k[rows], v[rows]
        height, width = _tile_shape(q.shape[2], k.shape[2])
        self.query_slots = _slices(q.shape[2], height)
        self.key_slots = _slices(k.shape[2], width)
        self._buffers: dict[str, Tensor] = {}

    @staticmethod
    def over_batch(options: Options, q: Tensor, k: Tensor, v: Tensor) -> list[Tiles]:
        height, width = _tile_shape(q.shape[2], k.shape[2])
        n_rows = max(1, CELLS // max(1, q.shape[1] * height * width))
        return [Tiles(options, q, k, v, rows) for rows in _slices(q.shape[0], n_rows)]

    def tall(self, x_BHTK: Tensor, slots: slice) -> Tensor:
        """The slots of a tensor of query heads, (b G, n t, K)."""
        part = x_BHTK[:, :, slots].to(self.dtype)
        return part.reshape(self.q.shape[0] * self.k.shape[1], -1, part.shape[-1])

    def flat(self, x_BGSK: Tensor, slots: slice) -> Tensor:
        """The slots of a tensor of key heads, (b G, s, K)."""
        return x_BGSK[:, :, slots].to(self.dtype).flatten(0, 1)

    def per_head(self, matrix: Tensor) -> Tensor:
        """A (b G, n t, x) matrix as (b, H, t, x)."""
        return matrix.view(self.q.shape[0], self.q.shape[1], -1, matrix.shape[-1])

    def product(self, name: str, a: Tensor, b: Tensor) -> Tensor:
        """a @ b in memory that is kept from tile to tile, so that none has to be asked for anew."""
        shape = (a.shape[0], a.shape[1], b.shape[2])
        size = shape[0] * shape[1] * shape[2]
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < size:
            self._buffers[name] = buffer = a.new_empty(size)
        return torch.bmm(a, b, out=buffer[:size].view(shape))

    def scores(
        self, q_part: Tensor, k_part: Tensor, cells: Tensor | bool, q_slots: slice, k_slots: slice
    ) -> tuple[Tensor, Tensor | None]:
        """The masked scores of a tile whose queries are scaled, and the slope of the soft-cap at each."""
        options, slope = self.options, None
        scores = self.product("scores", q_part, k_part.mT)
        if options.softcap is not None:
            scores.div_(options.softcap).tanh_()
            slope = 1 - scores.square()
            scores.mul_(options.softcap)
        if options.bias is not None:
            term = bias_term(options.bias, options.mask, self.q.shape[1], q_slots, k_slots, self.rows)
            self.per_head(scores).add_(term)
        if not isinstance(cells, bool):
            self.per_head(scores).masked_fill_(~cells, MINUS_INFINITY)
        return scores, slope

    def kept(self, like: Tensor, q_slots: slice, k_slots: slice) -> Tensor:
        """Dropout's factors of a tile, 0 or 1 / (1 - p): a tile has its own seed, so they can be drawn again."""
        index = hash((self.rows.start, q_slots.start, k_slots.start))
        generator = torch.Generator(like.device).manual_seed((self.options.seed + index) % 2**63)
        keep = 1 - self.options.dropout
        return torch.empty_like(like).bernoulli_(keep, generator=generator).div_(keep)


def _forward(tiles: Tiles, q_slots: slice, sinks: Tensor | None, z_BHTV: Tensor, lse_BHT: Tensor) -> None:
    """One strip of queries over all keys: rows [slots] of the output and of the log of the denominator."""
    options = tiles.options
    q_part = tiles.tall(tiles.q, q_slots) * options.scale
    mixed = q_part.new_zeros(*q_part.shape[:2], tiles.v.shape[-1])
    if sinks is None:
        top = q_part.new_full((*q_part.shape[:2], 1), MINUS_INFINITY)
        total = torch.zeros_like(top)
    else:  # a sink is a key already met, of weight one, that brought nothing
        top = _sink_column(tiles, sinks, q_part)
        total = torch.ones_like(top)
    for k_slots in tiles.key_slots:
        cells = options.mask.tile(q_slots, k_slots, tiles.rows)
        if cells is False:
            continue
        weights, _ = tiles.scores(q_part, tiles.flat(tiles.k, k_slots), cells, q_slots, k_slots)
        new_top = torch.maximum(top, weights.amax(dim=-1, keepdim=True))
        finite = new_top.clamp(min=torch.finfo(tiles.dtype).min)  # rows that saw nothing yet: their weights stay 0
        weights.sub_(finite).exp_()
        shrink = torch.exp(top - finite)
        total.mul_(shrink).add_(weights.sum(dim=-1, keepdim=True))
        if options.dropout > 0:
            weights.mul_(tiles.kept(weights, q_slots, k_slots))
        mixed.mul_(shrink).baddbmm_(weights, tiles.flat(tiles.v, k_slots))
        top = new_top
    nothing = total == 0
    z_BHTV[tiles.rows, :, q_slots] = tiles.per_head(mixed.div_(total.masked_fill_(nothing, 1.0)))
    # Infinite for rows that saw nothing: exp(score - infinity) is the zero their pattern is made of.
    lse = (top + total.log()).masked_fill_(nothing, float("inf"))
    lse_BHT[tiles.rows, :, q_slots] = tiles.per_head(lse)[..., 0]


def _sink_column(tiles: Tiles, sinks: Tensor, like: Tensor) -> Tensor:
    """The sink of each row of the tall matrices, (b G, n t, 1)."""
    n_rows, n_heads = tiles.q.shape[:2]
    n_queries = like.shape[0] * like.shape[1] // (n_rows * n_heads)
    column = sinks.to(tiles.dtype).view(1, n_heads, 1).expand(n_rows, n_heads, n_queries)
    return column.reshape(*like.shape[:2], 1)


def _backward(
    tiles: Tiles, sinks: Tensor | None, z_BHTV: Tensor, lse_BHT: Tensor, grad_BHTV: Tensor, gradients: Gradients
) -> None:
    """Each tile again, its pattern from the saved denominators, and from it the gradients (Dao 2022, algorithm 4)."""
    options, rows = tiles.options, tiles.rows
    z, lse, grad = z_BHTV[rows], lse_BHT[rows, ..., None], grad_BHTV[rows]
    deltas = [(tiles.tall(z, slots) * tiles.tall(grad, slots)).sum(dim=-1, keepdim=True) for slots in tiles.query_slots]
    for k_slots in tiles.key_slots:
        k_part, v_part = tiles.flat(tiles.k, k_slots), tiles.flat(tiles.v, k_slots)
        k_grad, v_grad = torch.zeros_like(k_part), torch.zeros_like(v_part)
        for q_slots, delta in zip(tiles.query_slots, deltas, strict=True):
            cells = options.mask.tile(q_slots, k_slots, rows)
            if cells is False:
                continue
            q_part = tiles.tall(tiles.q, q_slots) * options.scale
            grad_part = tiles.tall(grad, q_slots)
            scores, slope = tiles.scores(q_part, k_part, cells, q_slots, k_slots)
            pattern = scores.sub_(tiles.tall(lse, q_slots)).exp_()
            pattern_grad = tiles.product("pattern_grad", grad_part, v_part.mT)
            if options.dropout > 0:
                kept = tiles.kept(pattern, q_slots, k_slots)
                v_grad.baddbmm_((pattern * kept).mT, grad_part)
                pattern_grad.mul_(kept)
            else:
                v_grad.baddbmm_(pattern.mT, grad_part)
            scores_grad = pattern_grad.sub_(delta).mul_(pattern)
            _add_bias_gradient(tiles, scores_grad, q_slots, k_slots, gradients)
            if slope is not None:
                scores_grad.mul_(slope)
            k_grad.baddbmm_(scores_grad.mT, q_part)
            gradients.q[rows, :, q_slots] += tiles.per_head(tiles.product("q_grad", scores_grad, k_part))
        gradients.k[rows, :, k_slots] = k_grad.view_as(gradients.k[rows, :, k_slots])
        gradients.v[rows, :, k_slots] = v_grad.view_as(gradients.v[rows, :, k_slots])
    if sinks is not None and gradients.sinks is not None:
        for q_slots, delta in zip(tiles.query_slots, deltas, strict=True):
            share = torch.exp(_sink_column(tiles, sinks, delta) - tiles.tall(lse, q_slots))
            gradients.sinks.sub_(tiles.per_head(share * delta).sum(dim=(0, 2, 3)))


def _add_bias_gradient(tiles: Tiles, scores_grad: Tensor, q_slots: slice, k_slots: slice, gradients: Gradients) -> None:
    """The bias works out its own gradient, from this tile's term made again with a graph."""
    options, bias = tiles.options, tiles.options.bias
    if bias is None or all(total is None for total in gradients.trained):
        return
    wanted = [(t, total) for t, total in zip(bias.tensors(), gradients.trained, strict=True) if total is not None]
    with torch.enable_grad():
        term = bias_term(bias, options.mask, tiles.q.shape[1], q_slots, k_slots, tiles.rows)
    upstream = tiles.per_head(scores_grad).sum_to_size(term.shape).to(term.dtype)
    parts = torch.autograd.grad(term, [tensor for tensor, _ in wanted], upstream, allow_unused=True)
    for (_, total), part in zip(wanted, parts, strict=True):
        if part is not None:
            total.add_(part)


def _tile_shape(n_queries: int, n_keys: int) -> tuple[int, int]:
    """TILE x TILE, or with fewer queries as many more keys."""
    height = max(1, min(n_queries, TILE))
    return height, max(1, min(n_keys, TILE * TILE // height))


def _slices(length: int, step: int) -> list[slice]:
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]
