"""The product of a stream with a matrix of weights."""

from __future__ import annotations

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor


def linear(
    x: Float[Tensor, "*shape i"], weight_OI: Float[Tensor, "o i"], bias_O: Float[Tensor, "o"] | None = None
) -> Float[Tensor, "*shape o"]:
    """x @ W^T + b."""
    return F.linear(x, weight_OI, bias_O)
