"""oneDNN's product in float32 as one operation with a gradient, which compiled code can call: torch's compiler takes
MKL's, and that is half as fast where oneDNN's is in use at all (`clearhead/ops/matmul.py`).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula


@torch.library.custom_op(
    "clearhead::product", mutates_args=(), schema="(Tensor x, Tensor weight, Tensor? bias) -> Tensor"
)
def product(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    """x W^T + b; neither x nor W need lie in rows."""
    y_NO: Tensor = torch.ops.mkldnn._linear_pointwise(x_NI, weight_OI, bias_O, "none", [], "")
    return y_NO


@product.register_fake
def _(x_NI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
    return x_NI.new_empty(x_NI.shape[0], weight_OI.shape[0])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x_NI, weight_OI, _ = inputs
    ctx.save_for_backward(x_NI, weight_OI)


def _gradients(ctx: Any, y_NO: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    x_NI, weight_OI = ctx.saved_tensors
    of_x, of_weight, of_bias = ctx.needs_input_grad
    return (
        product(y_NO, weight_OI.T, None) if of_x else None,
        product(y_NO.T, x_NI.T, None) if of_weight else None,
        y_NO.sum(0) if of_bias else None,
    )


product.register_autograd(_gradients, setup_context=_keep)


@register_flop_formula(torch.ops.clearhead.product)
def _flops(x: tuple[int, ...], weight: tuple[int, ...], *rest: Any, **more: Any) -> int:
    return 2 * x[0] * x[1] * weight[0]
