"""Attention in bfloat16 by whole products: as much of the score matrix at a time as the cache holds, and its softmax.

torch's fused kernel for CPUs multiplies small tiles, for which its products in bfloat16 are no faster than in float32.
A product of whole rows of scores is: it runs on the processor's units for bfloat16. Scores are rounded to bfloat16
before softmax, which is about as much as the rounding of q and k does to them already, and the gradients of keys and
values are added up in bfloat16: at 2,048 tokens those of q, k and v are off by 0.43, 0.52 and 0.46 % (the fused
kernel's by 0.26, 0.46 and 0.47).

Two cores of an AMD EPYC with AVX-512, causal, milliseconds of the fused kernel and here:

| rows, heads, tokens, width | forward | backward |
|---|---|---|
| 16, 6, 256, 64 | 10.5, 4.2 | 23.8, 8.5 |
| 4, 12, 256, 64 | 4.9, 2.0 | 11.1, 4.1 |
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula, sdpa_backward_flop_count, sdpa_flop_count

from clearhead.ops.attention import MINUS_INFINITY
from clearhead.ops.attention_documents import apart, by_document
from clearhead.ops.attention_sdpa import attention_sdpa
from clearhead.ops.biases import Bias
from clearhead.ops.masks import BoundMask
from clearhead.ops.matmul import has_onednn, multiplies

QUICK = has_onednn() and multiplies(torch.bfloat16)
"""Whether this processor has units for bfloat16; asked at once, as compiled code can't ask."""
CELLS = 2**20
"""Scores at a time: 2 MB of them, and as much of what is made of them."""
QUERIES = 128
"""Queries at a time under the causal mask: each part leaves out the keys that come after it."""


def attention_products(
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
    """Attention by whole products: the backend "products". Masks that are neither plain nor made of documents go to the
    fused kernel.
    """
    if bias is not None or softcap is not None or sinks_H is not None or dropout > 0:
        raise AssertionError("products of the whole serve neither biases nor sinks; backends.choose() guards this call")
    dtype = product_dtype(q_BHTK)
    q_BHTK, k_BGSK, v_BGSV = q_BHTK.to(dtype), k_BGSK.to(dtype), v_BGSV.to(dtype)
    if not _is_plain(q_BHTK, k_BGSK, v_BGSV):
        return attention_sdpa(q_BHTK, k_BGSK, v_BGSV, mask, scale=scale)
    if mask.sees_all or mask.is_plain_causal:
        if k_BGSK.shape[2] > 0 and q_BHTK.numel() > 0:
            return _mixed(q_BHTK, k_BGSK, v_BGSV, mask.is_plain_causal and not mask.sees_all, scale)
    elif (cuts := apart(mask, q_BHTK)) is not None:
        return by_document(q_BHTK, k_BGSK, v_BGSV, cuts, partial(_mixed, is_causal=mask.is_causal, scale=scale))
    return attention_sdpa(q_BHTK, k_BGSK, v_BGSV, mask, scale=scale)


def product_dtype(q_BHTK: Tensor) -> torch.dtype:
    """What products are computed in: under autocast that is what it says, as torch's kernel has it. Queries that were
    rotated are in float32 there.
    """
    if q_BHTK.is_cpu and q_BHTK.dtype == torch.float32 and torch.is_autocast_enabled("cpu"):
        return torch.get_autocast_dtype("cpu")
    return q_BHTK.dtype


def _is_plain(*tensors: Tensor) -> bool:
    """Whether these are tensors of one process, and nobody transforms functions of them."""
    transformed = not torch.compiler.is_compiling() and bool(torch._C._are_functorch_transforms_active())
    return not transformed and all(type(x) is Tensor for x in tensors)


def _mixed(q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, is_causal: bool, scale: float) -> Tensor:
    z_BHTV: Tensor = _forward(q_BHTK, k_BGSK, v_BGSV, is_causal, scale)
    return z_BHTV


# One operation to whoever traces: compiled code calls it, and what it does inside is not traced.


@torch.library.custom_op(
    "clearhead::attention_products",
    mutates_args=(),
    schema="(Tensor q, Tensor k, Tensor v, bool is_causal, float scale) -> Tensor",
)
def _forward(q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, is_causal: bool, scale: float) -> Tensor:
    """softmax(scale q k^T) v; the result lies as (B, T, H, V) in memory, as the next product reads it."""
    n_shared = q_BHTK.shape[1] // k_BGSK.shape[1]
    z_BGRTV = _empty(q_BHTK, v_BGSV.shape[-1]).unflatten(1, (-1, n_shared))
    for part in _parts(q_BHTK, k_BGSK):
        q_NRTK, k_NSK, v_NSV = _under(q_BHTK, part, n_shared), _of(k_BGSK, part), _of(v_BGSV, part)
        z_NRTV = q_NRTK.new_empty(*q_NRTK.shape[:3], v_NSV.shape[-1])
        for begin, end, last in _queries(q_NRTK.shape[2], k_NSK.shape[1], is_causal):
            q_NqK = q_NRTK[:, :, begin:end].flatten(1, 2)
            pattern_NqS = _pattern(q_NqK, k_NSK[:, :last], n_shared, is_causal, scale)
            z_NRTV[:, :, begin:end] = (pattern_NqS @ v_NSV[:, :last]).unflatten(1, (n_shared, -1))
        z_BGRTV[part] = z_NRTV.view(z_BGRTV[part].shape)
    z_BHTV: Tensor = z_BGRTV.flatten(1, 2)
    return z_BHTV


@torch.library.custom_op(
    "clearhead::attention_products_backward",
    mutates_args=(),
    schema="(Tensor grad, Tensor q, Tensor k, Tensor v, bool is_causal, float scale) -> (Tensor, Tensor, Tensor)",
)
def _backward(
    grad_BHTV: Tensor, q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v; the pattern is worked out again, which is a fifth of the work, and not kept."""
    n_shared = q_BHTK.shape[1] // k_BGSK.shape[1]
    of_q_BHTK, of_k_BGSK, of_v_BGSV = (_empty(x, x.shape[-1]) for x in (q_BHTK, k_BGSK, v_BGSV))
    of_q_BGRTK = of_q_BHTK.unflatten(1, (-1, n_shared))
    for part in _parts(q_BHTK, k_BGSK):
        q_NRTK, grad_NRTV = _under(q_BHTK, part, n_shared), _under(grad_BHTV, part, n_shared)
        k_NSK, v_NSV = _of(k_BGSK, part), _of(v_BGSV, part)
        of_q_NRTK, of_k_NSK, of_v_NSV = torch.empty_like(q_NRTK), None, None
        # From the end: the last queries see all keys, and what earlier ones add is added to a part of that.
        for begin, end, last in reversed(_queries(q_NRTK.shape[2], k_NSK.shape[1], is_causal)):
            q_NqK, grad_NqV = (x[:, :, begin:end].flatten(1, 2) for x in (q_NRTK, grad_NRTV))
            k_NsK, v_NsV = k_NSK[:, :last], v_NSV[:, :last]
            pattern_Nqs = _pattern(q_NqK, k_NsK, n_shared, is_causal, scale)
            of_pattern_Nqs = grad_NqV @ v_NsV.mT
            of_scores_Nqs = torch._softmax_backward_data(of_pattern_Nqs, pattern_Nqs, -1, pattern_Nqs.dtype)
            of_v_NsV, of_k_NsK = pattern_Nqs.mT @ grad_NqV, of_scores_Nqs.mT @ q_NqK
            if of_k_NSK is None or of_v_NSV is None:
                of_k_NSK, of_v_NSV = of_k_NsK, of_v_NsV
            else:
                of_k_NSK[:, :last] += of_k_NsK
                of_v_NSV[:, :last] += of_v_NsV
            of_q_NRTK[:, :, begin:end] = (of_scores_Nqs @ k_NsK).unflatten(1, (n_shared, -1))
        assert of_k_NSK is not None and of_v_NSV is not None
        # The scale goes last: before, it would be a pass over the scores.
        of_q_BGRTK[part] = of_q_NRTK.mul_(scale).view(of_q_BGRTK[part].shape)
        of_k_BGSK[part] = of_k_NSK.mul_(scale).view(of_k_BGSK[part].shape)
        of_v_BGSV[part] = of_v_NSV.view(of_v_BGSV[part].shape)
    return of_q_BHTK, of_k_BGSK, of_v_BGSV


@_forward.register_fake
def _(q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, is_causal: bool, scale: float) -> Tensor:
    return _empty(q_BHTK, v_BGSV.shape[-1])


@_backward.register_fake
def _(
    grad_BHTV: Tensor, q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, is_causal: bool, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    of_q, of_k, of_v = (_empty(x, x.shape[-1]) for x in (q_BHTK, k_BGSK, v_BGSV))
    return of_q, of_k, of_v


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *kept, ctx.is_causal, ctx.scale = inputs
    ctx.save_for_backward(*kept)


def _gradients(ctx: Any, grad_BHTV: Tensor) -> tuple[Tensor | None, ...]:
    return (*_backward(grad_BHTV, *ctx.saved_tensors, ctx.is_causal, ctx.scale), None, None)


_forward.register_autograd(_gradients, setup_context=_keep)


@register_flop_formula(torch.ops.clearhead.attention_products)
def _flops(q: Any, k: Any, v: Any, *rest: Any, **more: Any) -> int:
    """As torch counts its own kernel."""
    return int(sdpa_flop_count(q, (q[0], q[1], *k[2:]), (q[0], q[1], *v[2:])))


@register_flop_formula(torch.ops.clearhead.attention_products_backward)
def _flops_back(grad: Any, q: Any, k: Any, v: Any, *rest: Any, **more: Any) -> int:
    return int(sdpa_backward_flop_count(grad, q, (q[0], q[1], *k[2:]), (q[0], q[1], *v[2:])))


Part = tuple[slice, slice]
"""Of rows, and of groups of heads."""


def _parts(q_BHTK: Tensor, k_BGSK: Tensor) -> Iterator[Part]:
    """Rows and groups whose scores are in the cache together."""
    n_rows, n_heads, n_queries, _ = q_BHTK.shape
    n_groups, n_keys = k_BGSK.shape[1:3]
    of_group = n_heads // n_groups * min(n_queries, QUERIES) * n_keys
    rows = _even(n_rows, CELLS // (of_group * n_groups))
    groups = n_groups if rows > 1 else _even(n_groups, CELLS // of_group)
    for row in range(0, n_rows, rows):
        for group in range(0, n_groups, groups):
            yield slice(row, row + rows), slice(group, group + groups)


def _even(n: int, most: int) -> int:
    """A number up to `most` in which `n` comes apart most evenly."""
    n_parts = -(-n // max(1, most))
    return -(-n // n_parts)


def _queries(n_queries: int, n_keys: int, is_causal: bool) -> list[tuple[int, int, int]]:
    """Where each part of the queries begins and ends, and how many keys it sees."""
    step = min(n_queries, QUERIES)
    ends = [(begin, min(begin + step, n_queries)) for begin in range(0, n_queries, step)]
    return [(begin, end, end if is_causal else n_keys) for begin, end in ends]


def _pattern(q_NqK: Tensor, k_NsK: Tensor, n_shared: int, is_causal: bool, scale: float) -> Tensor:
    """What each query makes of the keys, (N, q, s). Of the causal mask only the last square hides anything."""
    n_queries, n_keys = q_NqK.shape[1] // n_shared, k_NsK.shape[1]
    if is_causal:
        hidden_qs = q_NqK.new_full((n_queries, n_keys), MINUS_INFINITY).triu_(1 + n_keys - n_queries)
        scores_Nqs = torch.baddbmm(hidden_qs.repeat(n_shared, 1), q_NqK, k_NsK.mT, alpha=scale)
    else:
        scores_Nqs = torch.baddbmm(q_NqK.new_empty(1), q_NqK, k_NsK.mT, alpha=scale, beta=0)
    pattern_Nqs: Tensor = torch.softmax(scores_Nqs, dim=-1)
    return pattern_Nqs


def _under(x_BHTK: Tensor, part: Part, n_shared: int) -> Tensor:
    """Of a part, the heads of a group beside each other, (N, R, T, K)."""
    x_BGRTK: Tensor = x_BHTK.unflatten(1, (-1, n_shared))[part]
    return x_BGRTK.reshape(-1, *x_BGRTK.shape[2:])


def _of(x_BGSK: Tensor, part: Part) -> Tensor:
    x_BGSK = x_BGSK[part]
    return x_BGSK.reshape(-1, *x_BGSK.shape[2:])


def _empty(like_BHTK: Tensor, width: int) -> Tensor:
    """(B, H, T, width), which lies in memory as (B, T, H, width)."""
    n_rows, n_heads, n_tokens, _ = like_BHTK.shape
    return like_BHTK.new_empty(n_rows, n_tokens, n_heads, width).transpose(1, 2)
