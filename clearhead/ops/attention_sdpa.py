"""Adapter to torch's fused kernel, `scaled_dot_product_attention`, arranged so that its fused path is the one taken.

What takes torch off that path is not served here (`backends.py` says so): soft-capped scores, dropout, a bias that is
being trained. Sinks and values of another width than the keys are brought into a form the kernel knows.
"""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from clearhead.ops.attention import MINUS_INFINITY, accumulation_dtype, bias_term
from clearhead.ops.attention_documents import apart, by_document
from clearhead.ops.biases import Bias
from clearhead.ops.masks import BoundMask

FEW_QUERIES = 16
"""Up to so many queries, those of a group of heads are laid under each other as the queries of one head: keys and
values are then read once a group. One query, 8 groups of 4 heads of 128, 4,096 keys: 2.2 x faster in float32 and 9 x
in bfloat16 than with `enable_gqa`; with 512 queries there is no difference."""

SHORT = 128
"""Up to so many tokens that all see each other, three plain products are faster than the kernel, in float32. 1,024
tokens in texts of 20, 12 heads of 32, two threads: 0.5 ms and not 1.2, with the gradient 2.3 and not 3.8; in texts of
100 1.3 and not 1.8. In bfloat16 they are faster still, and round the scores."""


def attention_sdpa(
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
    """Attention by the fused kernel: the backend "sdpa". Its own causal flag is used for square causal masks only."""
    if softcap is not None or dropout > 0:
        raise AssertionError("the fused kernel knows neither soft-cap nor dropout; backends.choose() guards this call")
    if k_BGSK.shape[2] == 0:
        return (q_BHTK[..., :1] * 0).expand(*q_BHTK.shape[:3], v_BGSV.shape[-1])
    is_causal = mask.is_plain_causal and bias is None
    if not is_causal and bias is None and sinks_H is None and (cuts := apart(mask, q_BHTK)) is not None:
        return by_document(q_BHTK, k_BGSK, v_BGSV, cuts, partial(_plain, is_causal=mask.is_causal, scale=scale))
    cells = None if is_causal else additive_mask(mask, bias, q_BHTK.shape[1], q_BHTK.dtype)
    if sinks_H is not None:
        return _with_sink(q_BHTK, k_BGSK, v_BGSV, cells, is_causal, scale, sinks_H)
    if cells is None:
        return _plain(q_BHTK, k_BGSK, v_BGSV, is_causal, scale)
    return _fused(q_BHTK, k_BGSK, v_BGSV, cells, is_causal, scale)


def additive_mask(mask: BoundMask, bias: Bias | None, n_heads: int, dtype: torch.dtype) -> Tensor | None:
    """The mask as the kernel takes it: none, booleans, or with a bias numbers (float32 for the half types)."""
    if bias is None:
        return None if mask.sees_all else mask.dense
    key = (bias, n_heads, dtype)
    if key not in mask.kept:
        term_BHTS = bias_term(bias, mask, n_heads).to(accumulation_dtype(dtype))
        mask.kept[key] = term_BHTS if mask.sees_all else term_BHTS.masked_fill(~mask.dense, MINUS_INFINITY)
    kept: Tensor = mask.kept[key]
    return kept


def _plain(q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, is_causal: bool, scale: float) -> Tensor:
    """Without a mask, or with the causal one."""
    if is_causal or not _is_short(q_BHTK, k_BGSK):
        return _fused(q_BHTK, k_BGSK, v_BGSV, None, is_causal, scale)
    return torch.softmax((q_BHTK * scale) @ k_BGSK.mT, dim=-1) @ v_BGSV


def _is_short(q_BHTK: Tensor, k_BGSK: Tensor) -> bool:
    """Whether these are whole texts of few tokens, each head with keys of its own."""
    return (
        1 < q_BHTK.shape[2] == k_BGSK.shape[2] <= SHORT
        and q_BHTK.shape[1] == k_BGSK.shape[1]
        and q_BHTK.dtype == torch.float32
        and q_BHTK.is_cpu
        and not torch.compiler.is_compiling()
    )


def _fused(
    q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, cells: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    n_heads, n_queries, d_key = q_BHTK.shape[1:]
    n_groups, d_value = k_BGSK.shape[1], v_BGSV.shape[-1]
    if d_value < d_key:  # the fused path wants one width: zeros change neither the scores nor the values kept
        v_BGSV = F.pad(v_BGSV, (0, d_key - d_value))
    elif d_value > d_key:
        q_BHTK, k_BGSK = F.pad(q_BHTK, (0, d_value - d_key)), F.pad(k_BGSK, (0, d_value - d_key))
    if n_queries <= FEW_QUERIES and q_BHTK.device.type == "cpu" and not is_causal:
        z_BHTV = _few_queries(q_BHTK, k_BGSK, v_BGSV, cells, scale)
    else:
        z_BHTV = F.scaled_dot_product_attention(
            q_BHTK, k_BGSK, v_BGSV, cells, is_causal=is_causal, scale=scale, enable_gqa=n_heads != n_groups
        )
    return z_BHTV[..., :d_value] if d_value < d_key else z_BHTV


def _few_queries(q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, cells: Tensor | None, scale: float) -> Tensor:
    n_rows, n_heads, n_queries, width = q_BHTK.shape
    n_groups = k_BGSK.shape[1]
    n_shared = n_heads // n_groups
    if n_shared == 1:
        if n_queries > 1 or q_BHTK.dtype == torch.float32 or cells is not None:
            return F.scaled_dot_product_attention(q_BHTK, k_BGSK, v_BGSV, cells, scale=scale)
        # A lone row of half-precision numbers takes a slow product: asking twice is 1.6 x faster (12 heads, 512 keys).
        twice_BH2K = q_BHTK.expand(n_rows, n_heads, 2, width)
        return F.scaled_dot_product_attention(twice_BH2K, k_BGSK, v_BGSV, scale=scale)[:, :, :1]
    tall_BGRK = q_BHTK.reshape(n_rows, n_groups, n_shared * n_queries, width)
    if cells is not None and (n_queries > 1 or cells.shape[1] > 1):
        n_keys = k_BGSK.shape[2]
        full = cells.expand(-1, n_heads if cells.shape[1] > 1 else n_shared, n_queries, n_keys)
        cells = full.reshape(cells.shape[0], -1, n_shared * n_queries, n_keys)
    z_BGRV = F.scaled_dot_product_attention(tall_BGRK, k_BGSK, v_BGSV, cells, scale=scale)
    return z_BGRV.reshape(n_rows, n_heads, n_queries, -1)


def _with_sink(
    q_BHTK: Tensor,
    k_BGSK: Tensor,
    v_BGSV: Tensor,
    cells: Tensor | None,
    is_causal: bool,
    scale: float,
    sinks_H: Tensor,
) -> Tensor:
    """A sink is one more key, put first, with a value of zeros.

    Its score reaches it through one more dimension, in which queries hold sink / scale, that key 1, and the others 0:
    the kernel then needs no mask of its own per head, and the gradient of the sinks comes back through the queries.
    Under the causal flag one more query, put first, keeps the matrix square; its answer is thrown away.
    """
    n_rows, n_heads, n_queries, _ = q_BHTK.shape
    sink_BHT1 = (sinks_H.to(accumulation_dtype(q_BHTK.dtype)) / scale).to(q_BHTK.dtype)[:, None, None]
    q_BHTK = torch.cat([q_BHTK, sink_BHT1.expand(n_rows, n_heads, n_queries, 1)], dim=-1)
    k_BGSK = F.pad(k_BGSK, (0, 1, 1, 0))
    one = torch.zeros_like(k_BGSK[:1, :1])
    one[..., 0, -1] = 1
    k_BGSK = k_BGSK + one
    v_BGSV = F.pad(v_BGSV, (0, 0, 1, 0))
    if is_causal:
        return _fused(F.pad(q_BHTK, (0, 0, 1, 0)), k_BGSK, v_BGSV, None, True, scale)[:, :, 1:]
    if cells is not None:
        cells = F.pad(cells, (1, 0), value=True if cells.dtype == torch.bool else 0.0)
    return _fused(q_BHTK, k_BGSK, v_BGSV, cells, False, scale)
