"""The part of a block that works on one token at a time."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from clearhead import taps
from clearhead.config import FeedForwardConfig
from clearhead.forward import Pass
from clearhead.nn.linear import Linear
from clearhead.ops.activations import activation


class FeedForward(nn.Module):
    """down(act(up(x))) (Vaswani 2017, eq. 2), or with a gate down(act(gate(x)) * up(x)) (Shazeer 2020, eq. 6)."""

    sites: ClassVar[dict[str, str]] = taps.FEED_FORWARD

    def __init__(self, d_model: int, config: FeedForwardConfig) -> None:
        super().__init__()
        self.path = ""
        self.config = config
        self.act = activation(config.activation)
        self.gate_proj = Linear(d_model, config.d_ff, bias=config.bias) if config.gated else None
        self.up_proj = Linear(d_model, config.d_ff, bias=config.bias)
        self.down_proj = Linear(config.d_ff, d_model, bias=config.bias)

    def forward(self, x_BTD: Float[Tensor, "B T d"], p: Pass) -> Float[Tensor, "B T d"]:
        if self.gate_proj is None:
            pre_BTF = p.tap(self.path, "pre", self.up_proj(x_BTD))
            post_BTF = self.act(pre_BTF)
        else:
            pre_BTF = p.tap(self.path, "pre", self.gate_proj(x_BTD))
            post_BTF = self.act(pre_BTF) * self.up_proj(x_BTD)
        post_BTF = p.tap(self.path, "post", post_BTF)
        if self.training:
            post_BTF = F.dropout(post_BTF, self.config.dropout)
        out_BTD: Tensor = self.down_proj(post_BTF)
        return out_BTD
