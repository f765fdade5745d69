"""The block. Every model here is a stack of these."""

from __future__ import annotations

from typing import Any

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from clearhead import taps
from clearhead.config import (
    AttentionConfig,
    BlockConfig,
    ExpertsConfig,
    FeedForwardConfig,
    LatentAttentionConfig,
    Mamba2Config,
    MambaConfig,
    RecurrentConfig,
    SublayerConfig,
)
from clearhead.forward import Pass
from clearhead.nn.attention import Attention
from clearhead.nn.cross_attention import CrossAttention
from clearhead.nn.experts import Experts
from clearhead.nn.feed_forward import FeedForward
from clearhead.nn.latent_attention import LatentAttention
from clearhead.nn.mamba import Mamba
from clearhead.nn.mamba2 import Mamba2
from clearhead.nn.norm import Norm
from clearhead.nn.recurrent import Recurrent

OPS: dict[type, type[nn.Module]] = {
    AttentionConfig: Attention,
    FeedForwardConfig: FeedForward,
    ExpertsConfig: Experts,
    LatentAttentionConfig: LatentAttention,
    MambaConfig: Mamba,
    Mamba2Config: Mamba2,
    RecurrentConfig: Recurrent,
}
"""Which module computes what a config describes. A new kind of sub-layer is a new row."""


class Norms(nn.Module):
    """The up to three norms around a sub-layer."""

    def __init__(self, d_model: int, config: SublayerConfig) -> None:
        super().__init__()
        self.pre = Norm(d_model, config.pre) if config.pre is not None else None
        self.out = Norm(d_model, config.out) if config.out is not None else None
        self.after = Norm(d_model, config.after) if config.after is not None else None


class Block(nn.Module):
    """Reads the residual stream x, works out corrections, adds them: x = after(x + scale * out(op(pre(x))))."""

    def __init__(self, d_model: int, config: BlockConfig) -> None:
        super().__init__()
        self.path = ""
        self.config = config
        self.sites = taps.BLOCK if config.cross is None else taps.CROSSED_BLOCK
        self.mixer = _mixer(d_model, config.mixer)
        self.mixer_norm = Norms(d_model, config.mixer)
        self.cross = self.cross_norm = None
        if config.cross is not None:
            assert isinstance(config.cross.op, AttentionConfig)
            self.cross = CrossAttention(d_model, config.cross.op, config.cross.kept)
            self.cross_norm = Norms(d_model, config.cross)
        self.ffn = self.ffn_norm = None
        if config.ffn is not None:
            self.ffn = OPS[type(config.ffn.op)](d_model, config.ffn.op)
            self.ffn_norm = Norms(d_model, config.ffn)

    def forward(self, x_BTD: Float[Tensor, "B T d"], p: Pass) -> Float[Tensor, "B T d"]:
        c = self.config
        x_BTD = start_BTD = p.tap(self.path, "resid_pre", x_BTD)
        x_BTD = _onto(x_BTD, self._correction(self.mixer, self.mixer_norm, c.mixer, start_BTD, p), c.mixer)
        if self.mixer_norm.after is not None:
            x_BTD = self.mixer_norm.after(x_BTD)
        x_BTD = p.tap(self.path, "resid_mid", x_BTD)
        if self.cross is not None and self.cross_norm is not None and c.cross is not None:
            x_BTD = _onto(x_BTD, self._correction(self.cross, self.cross_norm, c.cross, x_BTD, p), c.cross)
            if self.cross_norm.after is not None:
                x_BTD = self.cross_norm.after(x_BTD)
            x_BTD = p.tap(self.path, "resid_cross", x_BTD)
        ffn, ffn_norm = self.ffn, self.ffn_norm  # a module takes long to find its parts
        if ffn is not None and ffn_norm is not None and c.ffn is not None:
            read_BTD = start_BTD if c.parallel else x_BTD
            x_BTD = _onto(x_BTD, self._correction(ffn, ffn_norm, c.ffn, read_BTD, p), c.ffn)
            if ffn_norm.after is not None:
                x_BTD = ffn_norm.after(x_BTD)
        return p.tap(self.path, "resid_post", x_BTD)

    def _correction(self, op: Any, norms: Norms, c: SublayerConfig, x_BTD: Tensor, p: Pass) -> Tensor:
        """What a sub-layer adds to the stream."""
        pre, out = norms.pre, norms.out
        if pre is not None:
            x_BTD = pre(x_BTD)
        out_BTD: Tensor = op(x_BTD, p)
        if out is not None:
            out_BTD = out(out_BTD)
        if c.dropout and self.training:
            out_BTD = F.dropout(out_BTD, c.dropout)
        if c.scale != 1.0:
            out_BTD = out_BTD * c.scale
        return p.tap(op.path, "out", out_BTD)


def _onto(x_BTD: Tensor, correction_BTD: Tensor, c: SublayerConfig) -> Tensor:
    """The stream after a sub-layer."""
    return x_BTD + correction_BTD if c.residual else correction_BTD


def _mixer(d_model: int, config: SublayerConfig) -> nn.Module:
    """Plain attention is told which heads it has, where some were cut off; no other kind counts over all of them."""
    kind, op = OPS[type(config.op)], config.op
    if config.kept is not None and isinstance(op, AttentionConfig):
        return kind(d_model, op, config.kept)
    return kind(d_model, op)
