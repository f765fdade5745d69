"""A causal convolution along the text, one filter a channel (depthwise)."""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor


def causal_convolution(
    x_BSC: Float[Tensor, "B s c"],
    weight_CW: Float[Tensor, "c w"],
    bias_C: Float[Tensor, "c"] | None = None,
    reach_BT: Int[Tensor, "B t"] | None = None,
) -> Float[Tensor, "B t c"]:
    """y_t = bias + sum_j weight[W - 1 - j] * x_{t - j}, for all but the first W - 1 of S = T + W - 1 inputs.

    The first W - 1 inputs are what stands before the text: a kept tail, or zeros. `reach_BT` says how many inputs
    before it a token may see (documents that are packed into one row); None: all.

    A sum of W shifted copies: with so few taps it is as fast as a convolution kernel, and needs no other layout.
    """
    width = weight_CW.shape[1]
    n_out = x_BSC.shape[1] - width + 1
    y_BTC = x_BSC[:, width - 1 :] * weight_CW[:, -1]
    for back in range(1, width):
        shifted_BTC = x_BSC[:, width - 1 - back :][:, :n_out]
        if reach_BT is not None:
            shifted_BTC = shifted_BTC * (reach_BT >= back)[:, :, None]
        y_BTC = torch.addcmul(y_BTC, shifted_BTC, weight_CW[:, width - 1 - back])
    return y_BTC if bias_C is None else y_BTC + bias_C
