"""Layer normalisation and its cheaper variant. Statistics are taken in float32 whatever the stream's dtype."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import Parameter


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
    if _has_quick_gradient(x, weight):
        quick: Tensor = _RMSNorm.apply(x, weight, eps)  # type: ignore[no-untyped-call]
        return quick if bias is None else quick + bias
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


def _has_quick_gradient(x: Tensor, weight: Tensor) -> bool:
    """Whether a gradient is wanted, of plain tensors whose numbers are not to be rounded, as `_RMSNorm` has it."""
    if torch.compiler.is_compiling() or not torch.is_grad_enabled() or not (x.requires_grad or weight.requires_grad):
        return False
    if type(x) is not Tensor or type(weight) not in (Tensor, Parameter):  # shared by several processes, perhaps
        return False
    return x.is_cpu and x.dtype == weight.dtype in (torch.float32, torch.float64) and x.numel() > 0


class _RMSNorm(torch.autograd.Function):
    """The formula with a gradient of its own: half the time of what autograd makes of its six parts (1.0M numbers in
    float32, both ways, one thread: 2.6 ms for 6.8), and one tensor kept for it where they keep three.

    With a mean of zero LayerNorm's kernel gives this gradient, less what would flow through the mean, which is put
    back: dx = dx' + mean(g w) / rms.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight_D: Tensor, eps: float) -> Tensor:
        d = x.shape[-1]
        size = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        inverse = size.square_().div_(d).add_(eps).rsqrt_()
        ctx.save_for_backward(x, weight_D, inverse)
        y: Tensor = (x * inverse).mul_(weight_D)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight_D, inverse = ctx.saved_tensors
        d = x.shape[-1]
        grad_x, grad_D, _ = torch.ops.aten.native_layer_norm_backward(
            grad, x, [d], torch.zeros_like(inverse), inverse, weight_D, None, [True, ctx.needs_input_grad[1], False]
        )
        grad_x += (grad @ weight_D)[..., None].mul_(inverse).div_(d)
        return grad_x, grad_D, None
