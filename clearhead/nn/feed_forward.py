"""The part of a block that works on one token at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from clearhead import taps
from clearhead.config import ClampedGate, FeedForwardConfig
from clearhead.forward import Pass
from clearhead.nn.linear import Linear, together
from clearhead.ops.activations import activation, clamped_gate


def joined(kind: str | ClampedGate) -> Callable[[Tensor | None, Tensor], Tensor]:
    """From gate and up, or from up alone where there is no gate, to what the last matrix reads."""
    if isinstance(kind, ClampedGate):
        return partial(_clamped, kind)
    return partial(_activated, activation(kind))


def _activated(act: Callable[[Tensor], Tensor], gate: Tensor | None, up: Tensor) -> Tensor:
    return act(up) if gate is None else act(gate) * up


def _clamped(kind: ClampedGate, gate: Tensor | None, up: Tensor) -> Tensor:
    assert gate is not None  # the config sees to it
    return clamped_gate(gate, up, kind.limit, kind.alpha)


class FeedForward(nn.Module):
    """down(act(up(x))) (Vaswani 2017, eq. 2), or with a gate down(act(gate(x)) * up(x)) (Shazeer 2020, eq. 6)."""

    sites: ClassVar[dict[str, str]] = taps.FEED_FORWARD

    def __init__(self, d_model: int, config: FeedForwardConfig) -> None:
        super().__init__()
        self.path = ""
        self.config = config
        self.join = joined(config.activation)
        self.gate_proj = Linear(d_model, config.d_ff, bias=config.bias) if config.gated else None
        self.up_proj = Linear(d_model, config.d_ff, bias=config.bias)
        self.down_proj = Linear(config.d_ff, d_model, bias=config.bias)

    def forward(self, x_BTD: Float[Tensor, "B T d"], p: Pass) -> Float[Tensor, "B T d"]:
        if self.gate_proj is None:
            pre_BTF = p.tap(self.path, "pre", self.up_proj(x_BTD))
            post_BTF = self.join(None, pre_BTF)
        else:
            gate_BTF, up_BTF = together(x_BTD, self.gate_proj, self.up_proj)
            pre_BTF = p.tap(self.path, "pre", gate_BTF)
            post_BTF = self.join(pre_BTF, up_BTF)
        post_BTF = p.tap(self.path, "post", post_BTF)
        if self.training:
            post_BTF = F.dropout(post_BTF, self.config.dropout)
        out_BTD: Tensor = self.down_proj(post_BTF)
        return out_BTD
