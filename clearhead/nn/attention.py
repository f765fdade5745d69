"""The part of a block that moves information between tokens."""

from __future__ import annotations

from typing import ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clearhead import taps
from clearhead.config import (
    AlibiConfig,
    AttentionConfig,
    KeptHeads,
    MaskConfig,
    QKNormConfig,
    RelativeBiasConfig,
    RotaryConfig,
)
from clearhead.forward import RELATIVE, Pass
from clearhead.layer_state import AttentionState, KVState, LayerState, WindowState
from clearhead.nn.attend import Scoring, attend_seen
from clearhead.nn.linear import Linear, together
from clearhead.nn.norm import Norm, NormOfAllHeads
from clearhead.nn.rotary import rotary_tables, turned
from clearhead.ops.biases import Alibi, Bias, RelativeBias, alibi_slopes
from clearhead.ops.masks import Around, BoundMask, Causal, Everything, Mask, Window


def mask_from(config: MaskConfig) -> Mask:
    """A layer's own mask."""
    if config.kind == "causal":
        return Causal() if config.window is None else Causal() & Window(config.window)
    return Everything() if config.window is None else Around(config.window)


class Attention(nn.Module):
    """Multi-head attention, out = W_O concat_h(softmax(q_h k_h^T * scale) v_h) (Vaswani 2017, section 3.2).

    Queries outnumber keys and values where heads are grouped (Ainslie 2023): G kv heads serve H query heads.
    """

    sites: ClassVar[dict[str, str]] = taps.ATTENTION

    def __init__(self, d_model: int, config: AttentionConfig, kept: KeptHeads | None = None) -> None:
        """kept: which heads these are, where others were cut off. What is counted over all heads goes by it."""
        super().__init__()
        c = self.config = config
        self.kept = kept
        self.path = ""
        d_q, d_kv = c.n_heads * c.d_head, c.n_kv_heads * c.d_head
        made_q, made_kv = d_q, d_kv
        if kept is not None and c.qk_norm is not None and c.qk_norm.over == "all_heads":
            # The norm reads the queries and keys of the others too, which so are made all the same.
            made_q, made_kv = kept.of * c.d_head, kept.of_kv * c.d_head
        self.q_proj = Linear(d_model, made_q, bias=c.bias.q)
        self.k_proj = Linear(d_model, made_kv, bias=c.bias.k)
        self.v_proj = Linear(d_model, d_kv, bias=c.bias.v)
        self.o_proj = Linear(d_q, d_model, bias=c.bias.o)
        self.q_norm = self.k_norm = None
        if c.qk_norm is not None:
            self.q_norm = self._norm(c.qk_norm, made_q, None if kept is None else kept.heads)
            self.k_norm = self._norm(c.qk_norm, made_kv, None if kept is None else kept.groups)
        self.sinks = nn.Parameter(torch.zeros(c.n_heads)) if c.scores.sinks else None
        self.mask = mask_from(c.mask)
        self.scale = c.d_head**-0.5 if c.scores.scale is None else c.scores.scale

    def new_state(self, capacity: int | None = None) -> LayerState:
        """An empty memory of the kind this layer needs; `capacity` is how many tokens are expected."""
        if self.config.mask.kind == "causal" and self.config.mask.window is not None:
            return WindowState(self.config.mask.window)
        return KVState(capacity)

    def forward(self, x_BTD: Float[Tensor, "B T d"], p: Pass) -> Float[Tensor, "B T d"]:
        c = self.config
        q_BTE, k_BTE, v_BTE = together(x_BTD, self.q_proj, self.k_proj, self.v_proj)
        q_BHTK = p.tap(self.path, "q_raw", self._heads(q_BTE, self.q_norm))
        k_BGTK = p.tap(self.path, "k_raw", self._heads(k_BTE, self.k_norm))
        v_BGTK = self._heads(v_BTE, None)
        if isinstance(c.positions, RotaryConfig):
            tables = rotary_tables(c.positions, c.d_head, p, x_BTD.dtype)
            q_BHTK = turned(q_BHTK, tables, c.positions.interleaved)
            k_BGTK = turned(k_BGTK, tables, c.positions.interleaved)
            if c.positions.on_values:
                v_BGTK = turned(v_BGTK, tables, c.positions.interleaved)

        k_BGSK, v_BGSK, keys = k_BGTK, v_BGTK, p.positions
        if p.state is not None:
            memory = cast(AttentionState, p.state.at(self.path))
            k_BGSK, v_BGSK, keys = memory.append(k_BGTK, v_BGTK, p.positions)
        return self._mixed(q_BHTK, k_BGSK, v_BGSK, p.bound_mask(self.mask, keys), p)

    def _mixed(self, q_BHTK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, mask: BoundMask, p: Pass) -> Tensor:
        """The correction, from what enters the product."""
        q_BHTK = p.tap(self.path, "q", q_BHTK)
        k_BGSK, v_BGSK = p.tap(self.path, "k", k_BGSK), p.tap(self.path, "v", v_BGSK)
        z_BHTK = p.tap(self.path, "z", self._attend(q_BHTK, k_BGSK, v_BGSK, mask, p))
        out_BTD: Tensor = self.o_proj(z_BHTK.transpose(1, 2).flatten(2))
        return out_BTD

    def _norm(self, config: QKNormConfig, width: int, left: tuple[int, ...] | None) -> Norm:
        d_head = self.config.d_head
        if config.over == "head" or left is None:
            return Norm(d_head if config.over == "head" else width, config.norm)
        return NormOfAllHeads(d_head, width // d_head, left, config.norm)

    def _heads(self, y_BTE: Tensor, norm: Norm | None) -> Tensor:
        """Split a projection into heads, (B, T, heads * K) to (B, heads, T, K), normed before or after the split.

        They are as many as are here: in training, processes may share them.
        """
        d_head, qk_norm = self.config.d_head, self.config.qk_norm
        if norm is not None and qk_norm is not None and qk_norm.over == "all_heads":
            y_BTE, norm = norm(y_BTE), None
        y_BTHK: Tensor = y_BTE.view(*y_BTE.shape[:-1], y_BTE.shape[-1] // d_head, d_head)
        if norm is not None:
            y_BTHK = norm(y_BTHK)
        return y_BTHK.transpose(1, 2)

    def _attend(self, q_BHTK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, mask: BoundMask, p: Pass) -> Tensor:
        scores = self.config.scores
        dropout = scores.dropout if self.training else 0.0
        scoring = Scoring(
            scale=self.scale, bias=self._bias(p), softcap=scores.softcap, sinks_H=self.sinks, dropout=dropout
        )
        return attend_seen(q_BHTK, k_BGSK, v_BGSK, mask, scoring, self.path, p)

    def _bias(self, p: Pass) -> Bias | None:
        kept, n_heads = self.kept, self.config.n_heads
        if isinstance(self.config.positions, RelativeBiasConfig):
            table = p.once(RELATIVE, _no_table)
            return table if kept is None else p.once((RELATIVE, kept.heads), lambda: table.of_heads(kept.heads))
        if not isinstance(self.config.positions, AlibiConfig):
            return None
        if kept is None:
            return p.once(("alibi", n_heads), lambda: Alibi(alibi_slopes(n_heads).to(p.device)))
        return p.once(("alibi", kept), lambda: Alibi(alibi_slopes(kept.of)[list(kept.heads)].to(p.device)))


def _no_table() -> RelativeBias:
    raise AssertionError("the stack puts its table of relative positions into the pass before its first layer")
