"""Normalisation of each token's vector."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.config import NormConfig
from clearhead.ops import step
from clearhead.ops.norms import layer_norm, mirrored_rms_norm, rms_norm

SMALL = 2**14
"""Up to so many numbers a norm by torch is a matter of launching kernels."""


class Norm(nn.Module):
    """LayerNorm or RMSNorm over the last dimension, of `width` numbers."""

    def __init__(self, width: int, config: NormConfig) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.full((width,), 1.0 - config.offset))
        self.bias = nn.Parameter(torch.zeros(width)) if config.bias else None
        self._twice: tuple[int, int, Tensor] | None = None
        """Where the weight lay and how often it had been written to, and its scale beside itself."""

    def forward(self, x: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape d"]:
        c = self.config
        if c.kind == "layer":
            return layer_norm(x, self._scale(), self.bias, c.eps)
        y = self._quick(x)
        if y is None:
            return rms_norm(x, self._scale(), self.bias, c.eps, c.round_first)
        return y if self.bias is None else y + self.bias

    def forget(self) -> None:
        """Let go of what was made of the weight, where a change of it leaves no trace."""
        self._twice = None

    def _quick(self, x: Tensor) -> Tensor | None:
        """The norm without its bias by a kernel for it, where there is one and the weight's changes can be told."""
        c, weight, own = self.config, self.weight, step.kernels(x)
        # Rounded first, a weight of another dtype than x gives the result its own.
        if own is not None and not weight.is_inference() and (not c.round_first or x.dtype == weight.dtype):
            y = own.rms_norm(x, self._scale_twice(weight), c.eps, c.round_first)
            if y is not None:
                return y
        if torch.is_grad_enabled() or torch.compiler.is_compiling() or weight.is_inference():
            return None
        if x.numel() > SMALL or not x.is_cpu:
            return None
        if c.round_first and x.dtype != self._wide():
            return mirrored_rms_norm(x, None, c.eps) * self._scale()
        return mirrored_rms_norm(x, self._scale_twice(weight), c.eps)

    def _wide(self) -> torch.dtype:
        return torch.promote_types(self.weight.dtype, torch.float32)

    def _scale(self) -> Tensor:
        """The weight and its offset. Applied before rounding, 1 + w must not be rounded either (Gemma)."""
        c = self.config
        if not c.offset:
            return self.weight
        return (self.weight if c.round_first else self.weight.to(self._wide())) + c.offset

    def _scale_twice(self, weight: Tensor) -> Tensor:
        """The scale beside itself, in float32: made once, and anew when the weight has changed."""
        kept = self._twice
        if kept is None or kept[0] != weight.data_ptr() or kept[1] != weight._version:
            scale = self._scale().to(self._wide())
            kept = self._twice = (weight.data_ptr(), weight._version, torch.cat([scale, scale]))
        return kept[2]


class NormOfAllHeads(Norm):
    """A norm over all heads together, of which only those in `heads` go on: others that were cut off still count."""

    def __init__(self, d_head: int, n_heads: int, heads: tuple[int, ...], config: NormConfig) -> None:
        super().__init__(n_heads * d_head, config)
        self.d_head, self.heads = d_head, list(heads)

    def forward(self, x: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape e"]:
        by_head: Tensor = super().forward(x).unflatten(-1, (-1, self.d_head))
        return by_head[..., self.heads, :].flatten(-2)
