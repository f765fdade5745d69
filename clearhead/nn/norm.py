"""Normalisation of each token's vector."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.config import NormConfig
from clearhead.ops.norms import layer_norm, rms_norm


class Norm(nn.Module):
    """LayerNorm or RMSNorm over the last dimension, of `width` numbers."""

    def __init__(self, width: int, config: NormConfig) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.full((width,), 1.0 - config.offset))
        self.bias = nn.Parameter(torch.zeros(width)) if config.bias else None

    def forward(self, x: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape d"]:
        c = self.config
        weight: Tensor = self.weight
        if c.offset:
            # Where the weight is applied before rounding, 1 + w must not be rounded either (Gemma).
            weight = (weight if c.round_first or weight.dtype == torch.float64 else weight.float()) + c.offset
        if c.kind == "layer":
            return layer_norm(x, weight, self.bias, c.eps)
        return rms_norm(x, weight, self.bias, c.eps, c.round_first)
