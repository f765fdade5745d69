"""Attention of many queries without a gradient, on a CPU: a block of queries at a time, by the product that is fastest.

torch's fused kernel for CPUs multiplies small tiles with MKL. Here a block of queries of all heads that share keys is
one tall product with the keys that it may see, and its whole rows of scores are in the cache for the softmax: oneDNN
multiplies such matrices at its full speed. Keys that the causal mask or a window hides from a whole block are left out.
Scores are float32 whatever the dtype, as in the reference.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import torch
from jaxtyping import Float
from torch import Tensor

from clearhead.ops.attention import MINUS_INFINITY
from clearhead.ops.attention_sdpa import attention_sdpa
from clearhead.ops.biases import Bias
from clearhead.ops.masks import And, BoundMask, Causal, Everything, Mask, Window
from clearhead.ops.matmul import has_onednn, linear, multiplies

CELLS = 2**19
"""Scores at a time: 2 MB."""
TALL, WIDE = 128, 128
"""From so many queries that share keys on, and from so many numbers that they have at one place. Milliseconds of the
fused kernel and here, two cores of an AMD EPYC with AVX-512:

| heads, of keys, width | queries, keys, window | float32 | bfloat16 |
|---|---|---|---|
| 4, 1, 256 | 512, 512 | 5.8, 3.3 | 6.1, 2.8 |
| 4, 1, 256 | 512, 1,023, 512 | 12.5, 4.9 | 13.5, 5.1 |
| 4, 1, 256 | 2,048, 2,048, 512 | 108, 22 | 102, 18 |
| 32, 8, 128 | 512, 512 | 26, 14 | 26, 13 |
| 12, 12, 64 | 512, 512 | 5.5, 5.4 | 5.6, 5.0 |
| 12, 12, 64 | 128, 128 | 0.6, 1.3 | 0.5, 1.4 |
"""


def attention_prefill(
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
    """Attention by blocks of queries: the backend "prefill". What it does not serve goes to the fused kernel."""
    if bias is not None or softcap is not None or sinks_H is not None or dropout > 0:
        raise AssertionError("blocks of queries serve neither biases nor sinks; backends.choose() guards this call")
    if not served(q_BHTK, k_BGSK, v_BGSV, mask):
        return attention_sdpa(q_BHTK, k_BGSK, v_BGSV, mask, scale=scale)
    n_rows, n_heads, n_queries, _ = q_BHTK.shape
    n_groups, n_keys, d_value = k_BGSK.shape[1], k_BGSK.shape[2], v_BGSV.shape[-1]
    n_shared = n_heads // n_groups
    # Scaled once, and in float32 from here on; in memory the result lies as the next product reads it.
    q_BGRTK = (q_BHTK.float() * scale).unflatten(1, (n_groups, n_shared))
    z_BTHV = v_BGSV.new_empty(n_rows, n_queries, n_heads, d_value)
    z_BGRTV = z_BTHV.transpose(1, 2).unflatten(1, (n_groups, n_shared))
    step = max(1, TALL // n_shared, min(n_queries, CELLS // (n_shared * n_keys)))
    blocks = [(begin, min(begin + step, n_queries)) for begin in range(0, n_queries, step)]
    for row, group in product(range(n_rows), range(n_groups)):
        # oneDNN wants rows without gaps: keys of 12 heads side by side take it a thousand times as long.
        k_SK, v_SV = k_BGSK[row, group].float().contiguous(), v_BGSV[row, group].contiguous()
        for begin, end in blocks:
            seen, corners = _keys(mask, begin, end)
            q_RtK = q_BGRTK[row, group, :, begin:end]
            scores_Rts = linear(q_RtK.reshape(-1, q_RtK.shape[-1]), k_SK[seen])
            for columns, hidden_tc in corners:
                scores_Rts.view(n_shared, end - begin, -1)[..., columns].masked_fill_(hidden_tc, MINUS_INFINITY)
            pattern_Rts = torch.softmax(scores_Rts, dim=-1).to(v_SV.dtype)
            z_BGRTV[row, group, :, begin:end] = linear(pattern_Rts, v_SV[seen].T).view(n_shared, end - begin, d_value)
    return z_BTHV.transpose(1, 2)


def served(q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, mask: BoundMask) -> bool:
    """Whether this is a call for which blocks are made, and the faster way."""
    n_shared = q_BHTK.shape[1] // k_BGSK.shape[1]
    if n_shared * q_BHTK.shape[2] < TALL or n_shared * q_BHTK.shape[3] < WIDE:
        return False
    if not q_BHTK.is_cpu or torch.compiler.is_compiling():
        return False
    if torch.is_grad_enabled() and any(x.requires_grad for x in (q_BHTK, k_BGSK, v_BGSV)):
        return False
    plain = all(type(x) is Tensor and x.dtype == q_BHTK.dtype for x in (q_BHTK, k_BGSK, v_BGSV))
    fast = q_BHTK.dtype == torch.float32 or (q_BHTK.dtype == torch.bfloat16 and multiplies(torch.bfloat16))
    if not (plain and fast and has_onednn()) or bool(torch._C._are_functorch_transforms_active()):
        return False
    return _reach(mask.mask) is not None and _every_row_sees(mask)


def _reach(mask: Mask) -> tuple[bool, int | None] | None:
    """Whether what comes later is hidden, and how far back a query sees; None for what is no such mask."""
    match mask:
        case Everything():
            return False, None
        case Causal():
            return True, None
        case And(Causal(), Window(size)):
            return True, size
    return None


def _every_row_sees(mask: BoundMask) -> bool:
    """Whether positions are plain numbers, and each query sees the key at its own place, so that no row is empty."""
    queries, keys = mask.queries.span, mask.keys.span
    return queries is not None and keys is not None and keys[0] <= queries[0] and queries[1] <= keys[1]


def _keys(mask: BoundMask, begin: int, end: int) -> tuple[slice, list[tuple[slice, Tensor]]]:
    """The keys that queries from `begin` up to `end` may see, and the corners of these where some of them may not: in
    which columns, and which cells, (t, c). The corners of all blocks are alike, so little is kept for all layers.
    """
    queries, keys, reach = mask.queries.span, mask.keys.span, _reach(mask.mask)
    assert queries is not None
    assert keys is not None
    assert reach is not None
    causal, window = reach
    first, last, n = queries[0] + begin, queries[0] + end - 1, end - begin
    low = keys[0] if window is None else max(keys[0], first - window + 1)
    high = min(keys[1], last + 1) if causal else keys[1]
    corners: list[tuple[slice, Tensor]] = []
    if causal:
        later_tc = _corner(mask, ("later", n, high - first, 0), lambda t, c: c > t)
        corners.append((slice(first - low, high - low), later_tc))
    if window is not None and (width := last - window + 1 - low) > 0:
        # Of these keys the first queries of the block see more than the last.
        edge = first - window - low
        gone_tc = _corner(mask, ("gone", n, width, edge), lambda t, c: c - t <= edge)
        corners.append((slice(0, width), gone_tc))
    return slice(low - keys[0], high - keys[0]), corners


def _corner(mask: BoundMask, key: tuple[str, int, int, int], hides: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """Which cells of a corner are hidden, by the numbers of query and column; kept for all layers and blocks."""
    _, n_queries, n_columns, _ = key
    if key not in mask.kept:
        mask.kept[key] = hides(torch.arange(n_queries)[:, None], torch.arange(n_columns))
    hidden_tc: Tensor = mask.kept[key]
    return hidden_tc
