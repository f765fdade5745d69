"""Adapter to FlexAttention (Dong 2024): a mask becomes a block mask, a bias and a soft-cap become its score_mod.

The predicates and biases are the same objects that every other backend asks: FlexAttention calls them with scalars,
and the compiler writes a kernel from them. Compiling takes seconds, once per kind of mask, bias and dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from clearhead.ops.biases import Bias
from clearhead.ops.masks import BoundMask, Positions

BLOCK = 128
"""The rows and columns of FlexAttention's blocks."""
KINDS_KEPT = 128
"""How many kinds of call are compiled. Past torch's own limit of 8 it would run uncompiled, on a full matrix."""


def attention_flex(
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
    """Attention by a kernel compiled for this mask and bias: the backend "flex"."""
    if sinks_H is not None or dropout > 0:
        raise AssertionError("FlexAttention is given neither sinks nor dropout; backends.choose() guards this call")
    n_queries = q_BHTK.shape[2]
    if q_BHTK.device.type == "cpu":
        # torch 2.13 for the CPU gets parts of blocks wrong: few and narrow keys give wrong numbers (seen with 40 of
        # width 8 and 16), and code made for a part of a block of queries may not compile. So whole blocks are given.
        q_BHTK, k_BGSK, v_BGSV = (F.pad(x, (0, 0, 0, -x.shape[2] % BLOCK)) for x in (q_BHTK, k_BGSK, v_BGSV))
        mask = _in_whole_blocks(mask)
    kernel: Callable[..., Tensor] = partial(_compiled, flex_attention)
    z_BHTV = run(kernel, block_mask(mask), q_BHTK, k_BGSK, v_BGSV, mask, scale=scale, bias=bias, softcap=softcap)
    return z_BHTV[:, :, :n_queries]


def run(
    kernel: Callable[..., Any],
    blocks: BlockMask,
    q_BHTK: Tensor,
    k_BGSK: Tensor,
    v_BGSV: Tensor,
    mask: BoundMask,
    *,
    scale: float,
    bias: Bias | None,
    softcap: float | None,
) -> Tensor:
    """One call of `kernel`, which is `flex_attention` compiled, or as it is: slow, on a full matrix, for checks."""
    change = score_mod(mask, bias, softcap) if bias is not None or softcap is not None else None
    grouped = q_BHTK.shape[1] != k_BGSK.shape[1]
    z_BHTV: Tensor = kernel(
        q_BHTK, k_BGSK, v_BGSV, score_mod=change, block_mask=blocks, scale=scale, enable_gqa=grouped
    )
    return z_BHTV


def block_mask(mask: BoundMask, compiled: bool = True) -> BlockMask:
    """Which blocks of 128 x 128 cells are hidden, mixed or all visible. Compiled, no full matrix is made."""
    if "block_mask" not in mask.kept:
        n_rows = mask.n_rows if mask.n_rows > 1 else None
        make: Callable[..., BlockMask] = partial(_compiled, create_block_mask) if compiled else create_block_mask
        mask.kept["block_mask"] = make(
            mask_mod(mask), n_rows, None, len(mask.queries), len(mask.keys), device=mask.device
        )
    blocks: BlockMask = mask.kept["block_mask"]
    return blocks


def _in_whole_blocks(mask: BoundMask) -> BoundMask:
    """The mask with as many queries and keys behind the others, at no position, as fill a block."""
    if len(mask.queries) % BLOCK == 0 and len(mask.keys) % BLOCK == 0:
        return mask
    if "whole_blocks" not in mask.kept:
        queries, keys = (
            Positions(rows_BT=F.pad(positions.rows(mask.device), (0, -len(positions) % BLOCK), value=-1))
            for positions in (mask.queries, mask.keys)
        )
        mask.kept["whole_blocks"] = BoundMask(mask.mask, queries, keys, mask.device)
    longer: BoundMask = mask.kept["whole_blocks"]
    return longer


Mod = Callable[..., Tensor]


def mask_mod(mask: BoundMask) -> Mod:
    """The predicate as FlexAttention asks it: of one cell, by row, head and slots."""
    q_pos, k_pos, allow = _position(mask.queries, mask), _position(mask.keys, mask), mask.mask.allow

    def visible(batch: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return allow(q, k, batch) & (k >= 0)

    # FlexAttention counts the arguments: a lambda has them whatever is wrapped around the functions of this module.
    return lambda batch, head, q_slot, k_slot: visible(batch, q_pos(batch, q_slot), k_pos(batch, k_slot))


def score_mod(mask: BoundMask, bias: Bias | None, softcap: float | None) -> Mod:
    """The soft-cap and the bias as FlexAttention asks for them: what becomes of one scaled score."""
    q_pos, k_pos = _position(mask.queries, mask), _position(mask.keys, mask)
    term = bias.widened().term if bias is not None else None

    def changed(score: Tensor, batch: Tensor, head: Tensor, q_slot: Tensor, k_slot: Tensor) -> Tensor:
        if softcap is not None:
            score = softcap * torch.tanh(score / softcap)
        return score if term is None else score + term(head, q_pos(batch, q_slot), k_pos(batch, k_slot))

    return lambda score, batch, head, q_slot, k_slot: changed(score, batch, head, q_slot, k_slot)


def _position(positions: Positions, mask: BoundMask) -> Callable[[Tensor, Tensor], Tensor]:
    rows = positions.rows(mask.device)
    return (lambda batch, slot: rows[0, slot]) if rows.shape[0] == 1 else (lambda batch, slot: rows[batch, slot])


def _compiled(function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
    with torch._dynamo.config.patch(recompile_limit=KINDS_KEPT):
        return _compile(function)(*arguments, **options)


@cache
def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    # Made at the first use: the compiler alone takes seconds to import. fullgraph: never fall back in silence. Not
    # dynamic: with symbolic sizes torch 2.13 writes C++ for the CPU that does not compile.
    return torch.compile(function, fullgraph=True, dynamic=False)
