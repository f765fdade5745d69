"""Many small feed-forwards, a few of which work on each token: a loop over them, and the fast form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from clearhead.ops.matmul import linear
from clearhead.ops.quantised import QuantisedTensor, product

Inner = Callable[[Tensor | None, Tensor], Tensor]
"""From gate (None where there is none) and up to what `down` reads."""


SMALL = 2**18
"""Below so many weights in a matrix, the time to choose a kernel counts."""


@dataclass(frozen=True, kw_only=True)
class ExpertWeights:
    """The matrices of E experts: gate and up (E, F, D), down (E, D, F), and their biases (E, F) and (E, D)."""

    up: Tensor
    down: Tensor
    gate: Tensor | None = None
    up_bias: Tensor | None = None
    down_bias: Tensor | None = None
    gate_bias: Tensor | None = None


def experts_loop(
    x_ND: Float[Tensor, "n d"],
    chosen_NC: Int[Tensor, "n c"],
    weights_NC: Float[Tensor, "n c"],
    experts: ExpertWeights,
    inner: Inner,
) -> Float[Tensor, "n d"]:
    """y_n = sum_c weight_nc expert_c(x_n) (Shazeer 2017, eq. 1), expert after expert. The reference."""

    def product(e: int, x: Tensor, weight_EOI: Tensor, bias_EO: Tensor | None) -> Tensor:
        y = x @ weight_EOI[e].T
        return y if bias_EO is None else y + bias_EO[e]

    y_ND = torch.zeros_like(x_ND, dtype=torch.promote_types(x_ND.dtype, weights_NC.dtype))
    for e in range(experts.up.shape[0]):
        token, slot = (chosen_NC == e).nonzero(as_tuple=True)
        x_MD = x_ND[token]
        gate_MF = None if experts.gate is None else product(e, x_MD, experts.gate, experts.gate_bias)
        up_MF = product(e, x_MD, experts.up, experts.up_bias)
        out_MD = product(e, inner(gate_MF, up_MF), experts.down, experts.down_bias)
        y_ND = y_ND.index_add(0, token, weights_NC[token, slot, None] * out_MD)
    return y_ND.to(x_ND.dtype)


def experts_grouped(
    x_ND: Float[Tensor, "n d"],
    chosen_NC: Int[Tensor, "n c"],
    weights_NC: Float[Tensor, "n c"],
    experts: ExpertWeights,
    inner: Inner,
) -> Float[Tensor, "n d"]:
    """The same: tokens sorted by expert, and one product for each expert that has any.

    Without a gradient, no step takes longer for there being more experts that nobody chose.
    """
    n_tokens, n_chosen = chosen_NC.shape
    if n_tokens == 0:
        return x_ND
    # Slots, S of them, are tokens as often as they have experts.
    order_S = chosen_NC.flatten().argsort(stable=True)
    found, counts = chosen_NC.flatten()[order_S].unique_consecutive(return_counts=True)
    groups = found.tolist(), counts.tolist()
    x_SD = x_ND.index_select(0, order_S // n_chosen)
    gate_SF = None if experts.gate is None else grouped_product(x_SD, experts.gate, experts.gate_bias, *groups)
    up_SF = grouped_product(x_SD, experts.up, experts.up_bias, *groups)
    out_SD = grouped_product(inner(gate_SF, up_SF), experts.down, experts.down_bias, *groups)
    y_NCD = out_SD.index_select(0, order_S.argsort()).view(n_tokens, n_chosen, -1)
    return (weights_NC[:, None] @ y_NCD.to(weights_NC.dtype)).squeeze(1).to(x_ND.dtype)


def grouped_product(
    x_SI: Float[Tensor, "s i"],
    weight_EOI: Float[Tensor, "e o i"],
    bias_EO: Float[Tensor, "e o"] | None,
    found: Sequence[int],
    counts: Sequence[int],
) -> Float[Tensor, "s o"]:
    """x @ W_e^T + b_e, for `counts` neighbouring rows of x each, with the matrices of the experts `found`."""
    parts = x_SI.split(list(counts))
    if torch.is_grad_enabled():
        # Taken apart once, the gradient comes back whole and once, not as zeros of all experts for each of them.
        weights, biases = weight_EOI.unbind(), None if bias_EO is None else bias_EO.unbind()
        found_biases = [None if biases is None else biases[e] for e in found]
        return torch.cat([F.linear(x, weights[e], b) for e, x, b in zip(found, parts, found_biases, strict=True)])
    y_SO = x_SI.new_empty(x_SI.shape[0], weight_EOI.shape[1])
    for e, x_MI, y_MO in zip(found, parts, y_SO.split(list(counts)), strict=True):
        _product(x_MI, weight_EOI[e], y_MO)
        if bias_EO is not None:
            y_MO += bias_EO[e]
    return y_SO


def _product(x_MI: Tensor, weight_OI: Tensor, y_MO: Tensor) -> None:
    """x @ W^T into its place. Counts of rows are mostly odd here, and W x^T, which `linear` takes for a few rows of
    float32, is slow at that: at 13 and 17 rows of 768, 1.2 and 0.95 ms against 0.6 and 0.7 (one thread). And a small
    matrix is soon done.
    """
    if isinstance(weight_OI, QuantisedTensor):
        y_MO.copy_(product(x_MI, weight_OI))
    elif x_MI.dtype == torch.float32 and (x_MI.shape[0] > 1 or weight_OI.numel() < SMALL):
        torch.mm(x_MI, weight_OI.T, out=y_MO)
    else:
        y_MO.copy_(linear(x_MI, weight_OI))
