"""What predictions cost, summed over real targets; the mean is taken where the targets of a whole step are counted.

Each function gives the sum and the number of targets in it, so that a batch can be cut in any way: sums and numbers
add up, and means don't.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from clearhead.errors import ClearheadError
from clearhead.ops.matmul import linear, multiplies, transposed_product

IGNORE = -100
"""The target of what is not to be predicted."""
AT_ONCE = 2**24
"""The most logits that are held at a time where they are worked out again in the backward pass."""
HELD = 2**27
"""Bytes of logits that are held at a time, whatever the vocabulary: 1,335 rows of 50,257 words in bfloat16. Every
further chunk is a pass over the gradient of the unembedding."""
IN_CACHE = 2**20
"""So many of them are made into their gradient at a time."""
WORDS = 2048
"""So many rows of the unembedding's gradient are made at a time. 1,024 rows, 50,257 words, width 768, in bfloat16: 94
ms, and 178 in one product."""
LINE = 64
"""Numbers in a line of the cache, or two."""


def cross_entropy_sum(
    logits: Float[Tensor, "*n v"],
    targets: Int[Tensor, "*n"],
    label_smoothing: float = 0.0,
    ignore: int = IGNORE,
) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
    """The sum of -log p(target), and the number of targets; an ignored row counts in neither, whatever is in it.

    With smoothing e a target is 1 - e of itself and e of the uniform distribution (Szegedy 2015, Inception-v3, section
    7). Sums are in float32 at least.
    """
    is_real = targets != ignore
    rows_NV = logits[is_real].to(torch.promote_types(logits.dtype, torch.float32))
    total = F.cross_entropy(rows_NV, targets[is_real], reduction="sum", label_smoothing=label_smoothing)
    return total, is_real.sum()


def linear_cross_entropy_sum(
    x_ND: Float[Tensor, "n d"],
    weight_VD: Float[Tensor, "v d"],
    bias_V: Float[Tensor, "v"] | None,
    targets_N: Int[Tensor, "n"],
    *,
    scale: float = 1.0,
    softcap: float | None = None,
    label_smoothing: float = 0.0,
    ignore: int = IGNORE,
    chunk: int | None = None,
) -> tuple[Float[Tensor, ""], Int[Tensor, ""]]:
    """`cross_entropy_sum` of softcap(scale * x W^T + b), without ever holding the logits of all rows.

    Rows go through in chunks, and the gradients of a chunk are taken while its logits are there: nothing is computed
    twice, and what is kept for the backward pass is as large as x, W and b. They are given once.

    Args:
        chunk: rows at a time; None chooses.

    Raises:
        ClearheadError: a second backward pass through the same sum.
    """
    is_real_N = targets_N != ignore
    if not bool(is_real_N.all()):
        x_ND, targets_N = x_ND[is_real_N], targets_N[is_real_N]
    n_rows, n_words = x_ND.shape[0], weight_VD.shape[0]
    dtype = _product_dtype(x_ND)
    n_chunks = -(-n_rows // (chunk or rows_at_once(n_words, dtype.itemsize)))
    head = _Head(
        scale=scale,
        softcap=softcap,
        smoothing=label_smoothing,
        # Chunks of one size: a small last one would cost a pass over W's gradient like any other.
        chunk=-(-n_rows // n_chunks) if n_chunks else 1,
        dtype=dtype,
    )
    wants = tuple(torch.is_grad_enabled() and t is not None and t.requires_grad for t in (x_ND, weight_VD, bias_V))
    total = _LinearCrossEntropy.apply(x_ND, weight_VD, bias_V, targets_N, head, wants)  # type: ignore[no-untyped-call]
    return total, torch.tensor(n_rows, device=targets_N.device)


def rows_at_once(n_words: int, n_bytes: int) -> int:
    """Rows of a chunk, where a logit takes so many bytes."""
    return max(1, HELD // (n_words * n_bytes))


def distillation_sum(
    logits_NV: Float[Tensor, "n v"], teacher_NV: Float[Tensor, "n v"], temperature: float
) -> Float[Tensor, ""]:
    """t^2 KL(teacher || student) of the distributions at temperature t, summed over rows (Hinton 2015, section 2).

    The square keeps the size of the gradients, which fall with it.
    """
    wide = torch.promote_types(logits_NV.dtype, torch.float32)
    ours_NV = F.log_softmax(logits_NV.to(wide) / temperature, dim=-1)
    theirs_NV = F.log_softmax(teacher_NV.to(wide) / temperature, dim=-1)
    return F.kl_div(ours_NV, theirs_NV, reduction="sum", log_target=True) * temperature**2


@dataclass(frozen=True)
class _Head:
    """How rows become logits, and how many at a time."""

    scale: float
    softcap: float | None
    smoothing: float
    chunk: int
    dtype: torch.dtype


def _product_dtype(x: Tensor) -> torch.dtype:
    """What products are computed in: as autocast says, where it is on. A processor without instructions for halves is
    29 times as fast in float32, and more exact.
    """
    kind = x.device.type
    wanted = x.dtype
    if torch.is_autocast_enabled(kind) and wanted != torch.float64:
        wanted = torch.get_autocast_dtype(kind)
    is_half = wanted in (torch.bfloat16, torch.float16)
    return torch.float32 if is_half and x.is_cpu and not multiplies(wanted) else wanted


class _LinearCrossEntropy(torch.autograd.Function):
    """The sum for rows that all have a target. The gradients are worked out in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        x_ND: Tensor,
        weight_VD: Tensor,
        bias_V: Tensor | None,
        targets_N: Tensor,
        head: _Head,
        wants: tuple[bool, bool, bool],
    ) -> Tensor:
        with torch.autocast(x_ND.device.type, enabled=False):
            total, ctx.grads = _sum_and_gradients(x_ND, weight_VD, bias_V, targets_N, head, wants)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if ctx.grads is None:
            raise ClearheadError("the gradients of a chunked loss are given once; compute the loss again for more")
        grads, ctx.grads = ctx.grads, None
        if upstream.is_cpu and float(upstream) == 1.0:
            return (*grads, None, None, None)
        # In place: a second matrix of the size of the unembedding would be the largest thing in memory.
        return (*(None if grad is None else grad.mul_(upstream) for grad in grads), None, None, None)


Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]


def _sum_and_gradients(
    x_ND: Tensor,
    weight_VD: Tensor,
    bias_V: Tensor | None,
    targets_N: Tensor,
    head: _Head,
    wants: tuple[bool, bool, bool],
) -> tuple[Tensor, Gradients]:
    """The sum, and its gradients with respect to x, W and b where they are wanted."""
    product_VD = weight_VD.to(head.dtype)
    wide = torch.promote_types(head.dtype, torch.float32)
    total = torch.zeros((), dtype=wide, device=x_ND.device)
    x_grad_ND = torch.empty_like(x_ND) if wants[0] else None
    weight_grad_VD = torch.empty_like(weight_VD, dtype=wide) if wants[1] else None
    bias_grad_V = torch.zeros(weight_VD.shape[0], dtype=wide, device=x_ND.device) if wants[2] else None
    for start in range(0, x_ND.shape[0], head.chunk):
        rows_CD = x_ND[start : start + head.chunk].to(head.dtype)
        grad_CV = _product(rows_CD, product_VD)
        total += _to_gradients(grad_CV, bias_V, targets_N[start : start + head.chunk], head, any(wants), bias_grad_V)
        if x_grad_ND is not None:
            x_grad_ND[start : start + head.chunk] = linear(grad_CV, product_VD.T)
        if weight_grad_VD is not None:
            _add_product(weight_grad_VD, grad_CV, rows_CD, is_first=start == 0)
    if weight_grad_VD is not None:
        weight_grad_VD = torch.zeros_like(weight_VD) if len(x_ND) == 0 else weight_grad_VD.to(weight_VD.dtype)
    if bias_grad_V is not None and bias_V is not None:
        bias_grad_V = bias_grad_V.to(bias_V.dtype)
    return total, (x_grad_ND, weight_grad_VD, bias_grad_V)


def _product(rows_CD: Tensor, weight_VD: Tensor) -> Tensor:
    """The logits, before all else. Each of their rows begins where a line of the cache does: of 50,257 words in
    bfloat16, the product that makes the gradient of W is twice as fast so, and others gain a fifth.
    """
    n_rows, n_words = len(rows_CD), len(weight_VD)
    if not rows_CD.is_cpu or rows_CD.dtype == torch.float32:
        return linear(rows_CD, weight_VD)
    logits_CV = rows_CD.new_empty(n_rows, n_words + -n_words % LINE)[:, :n_words]
    return torch.mm(rows_CD, weight_VD.T, out=logits_CV)


def _to_gradients(
    raw_CV: Tensor,
    bias_V: Tensor | None,
    targets_C: Tensor,
    head: _Head,
    wants_gradient: bool,
    bias_grad_V: Tensor | None,
) -> Tensor:
    """The summed loss of raw logits, which become its gradient; that of the bias is added to what is there.

    A few rows at a time, so that none of the passes over them in float32 leaves the cache.
    """
    wide = torch.promote_types(raw_CV.dtype, torch.float32)
    total = torch.zeros((), dtype=wide, device=raw_CV.device)
    few = max(1, IN_CACHE // raw_CV.shape[1]) if raw_CV.is_cpu else len(raw_CV)
    for raw_RV, targets_R in zip(raw_CV.split(few), targets_C.split(few), strict=True):
        logits_RV, slope_RV = _logits(raw_RV.to(wide), bias_V, head, wants_gradient)
        loss, grad_RV = _loss_and_gradient(logits_RV, targets_R, head.smoothing, wants_gradient)
        total += loss
        if grad_RV is None:
            continue
        if slope_RV is not None:
            grad_RV *= slope_RV
        if bias_grad_V is not None:
            bias_grad_V += grad_RV.sum(dim=0)
        if head.scale != 1.0:
            grad_RV *= head.scale
        raw_RV.copy_(grad_RV)
    return total


def _logits(raw_CV: Tensor, bias_V: Tensor | None, head: _Head, wants_slope: bool) -> tuple[Tensor, Tensor | None]:
    """softcap(scale * raw + b), written over `raw`, and the soft cap's derivative there."""
    if head.scale != 1.0:
        raw_CV *= head.scale
    if bias_V is not None:
        raw_CV += bias_V
    if head.softcap is None:
        return raw_CV, None
    raw_CV /= head.softcap
    raw_CV.tanh_()
    slope_CV = 1 - raw_CV.square() if wants_slope else None
    raw_CV *= head.softcap
    return raw_CV, slope_CV


def _loss_and_gradient(
    logits_CV: Tensor, targets_C: Tensor, smoothing: float, wants_gradient: bool
) -> tuple[Tensor, Tensor | None]:
    """The summed loss, and its gradient: the probabilities less the smoothed target.

    The logarithm of the sum of exponentials is read off the likeliest word, whose probability is at least 1 / V: the
    log-probabilities of all words, and their exponentials, would be two more passes.
    """
    n_words = logits_CV.shape[1]
    at_target_C1 = targets_C[:, None]
    p_CV = torch.softmax(logits_CV, dim=-1)
    most_C = logits_CV.amax(dim=-1)
    above_most_C = -p_CV.amax(dim=-1).log()
    loss = (above_most_C + (1 - smoothing) * (most_C - logits_CV.gather(1, at_target_C1)[:, 0])).sum()
    if smoothing:
        loss += smoothing * (most_C - logits_CV.mean(dim=-1)).sum()
    if not wants_gradient:
        return loss, None
    p_CV.scatter_add_(1, at_target_C1, p_CV.new_full(at_target_C1.shape, smoothing - 1))
    if smoothing:
        p_CV -= smoothing / n_words
    return loss, p_CV


def _add_product(total_VD: Tensor, a_CV: Tensor, b_CD: Tensor, is_first: bool) -> None:
    """total + a^T b, in float32 at least; the first product is set. Some words at a time, while what the product makes
    is in the cache.
    """
    step = WORDS if a_CV.is_cpu else len(total_VD)
    for start in range(0, len(total_VD), step):
        part_WD, a_CW = total_VD[start : start + step], a_CV[:, start : start + step]
        if is_first:
            part_WD.copy_(transposed_product(a_CW, b_CD))
        else:
            part_WD.add_(transposed_product(a_CW, b_CD))
