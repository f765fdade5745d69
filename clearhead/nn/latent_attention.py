"""Attention that remembers one small vector a token."""

from __future__ import annotations

from typing import ClassVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clearhead import taps
from clearhead.config import LatentAttentionConfig, YarnScaling
from clearhead.errors import ClearheadError
from clearhead.forward import Pass
from clearhead.layer_state import LatentState, LayerState
from clearhead.nn.attend import Scoring, attend_fast, attend_seen, show_steps
from clearhead.nn.attention import mask_from
from clearhead.nn.linear import Linear
from clearhead.nn.norm import Norm
from clearhead.nn.rotary import rotary_tables
from clearhead.ops.masks import BoundMask
from clearhead.ops.positions import rotate, yarn_gain

READ_OUT = ("k", "v", "scores", "pattern")
"""What only the readable form makes."""


class LatentAttention(nn.Module):
    """Multi-head latent attention (DeepSeek-AI 2024, DeepSeek-V2, section 2.1, equations 9 to 19).

    A token's keys and values are linear in one vector, c = norm(W_DKV x), that all heads share, beside one rotated
    key, k_R = rope(W_KR x): k_h = [W_UK_h c, k_R], v_h = W_UV_h c. Only c and k_R are kept.
    """

    sites: ClassVar[dict[str, str]] = taps.LATENT_ATTENTION

    def __init__(self, d_model: int, config: LatentAttentionConfig) -> None:
        super().__init__()
        c = self.config = config
        w = c.widths
        self.path = ""
        d_q = c.n_heads * (w.nope + w.rope)
        if w.q is None:
            self.q_proj = Linear(d_model, d_q, bias=False)
        else:
            self.q_a_proj = Linear(d_model, w.q, bias=c.bias)
            self.q_a_norm = Norm(w.q, c.norm)
            self.q_b_proj = Linear(w.q, d_q, bias=False)
        self.kv_a_proj = Linear(d_model, w.kv + w.rope, bias=c.bias)
        self.kv_a_norm = Norm(w.kv, c.norm)
        self.kv_b_proj = Linear(w.kv, c.n_heads * (w.nope + w.value), bias=False)
        self.o_proj = Linear(c.n_heads * w.value, d_model, bias=c.bias)
        self.sinks = nn.Parameter(torch.zeros(c.n_heads)) if c.scores.sinks else None
        self.mask = mask_from(c.mask)
        self.scale = _scale(c)

    def new_state(self, capacity: int | None = None) -> LayerState:
        """An empty memory; `capacity` is how many tokens are expected."""
        return LatentState(capacity)

    def forward(self, x_BTD: Float[Tensor, "B T d"], p: Pass) -> Float[Tensor, "B T d"]:
        c, w = self.config, self.config.widths
        cos, sin = rotary_tables(c.positions, w.rope, p, x_BTD.dtype)

        def turned(x_BHTK: Tensor) -> Tensor:
            """Rotated in its last R dimensions."""
            still, moving = x_BHTK[..., : -w.rope], x_BHTK[..., -w.rope :]
            return torch.cat([still, rotate(moving, cos, sin, c.positions.interleaved)], dim=-1)

        q_BHTK = turned(p.tap(self.path, "q_raw", self._queries(x_BTD)))
        latent_BTC, rope_BTR = self.kv_a_proj(x_BTD).split([w.kv, w.rope], dim=-1)
        raw_B1TE = torch.cat([self.kv_a_norm(latent_BTC), rope_BTR], dim=-1)[:, None]
        new_k_BHTK = self._edited_raw_keys(raw_B1TE, p)

        kept_B1SE, keys = turned(raw_B1TE), p.positions
        if p.state is not None:
            kept_B1SE, keys = cast(LatentState, p.state.at(self.path)).append(kept_B1SE, p.positions)
        q_BHTK = p.tap(self.path, "q", q_BHTK)
        mask = p.bound_mask(self.mask, keys)
        modes = {name: "none" if p.taps is None else p.taps.mode(self.path, name) for name in READ_OUT}
        if new_k_BHTK is None and "edit" not in modes.values() and self._absorbing_is_less(q_BHTK, kept_B1SE):
            z_BHTV = self._absorbed(q_BHTK, kept_B1SE, mask, p)
            if "read" in modes.values():
                k_BHSK, _ = self._tapped(*self._keys_and_values(kept_B1SE), p)
                show_steps(q_BHTK, k_BHSK, mask, self._scoring(), self.path, p)
        else:
            k_BHSK, v_BHSV = self._keys_and_values(kept_B1SE)
            k_BHSK, v_BHSV = self._tapped(k_BHSK if new_k_BHTK is None else turned(new_k_BHTK), v_BHSV, p)
            z_BHTV = attend_seen(q_BHTK, k_BHSK, v_BHSV, mask, self._scoring(), self.path, p)
        z_BHTV = p.tap(self.path, "z", z_BHTV)
        out_BTD: Tensor = self.o_proj(z_BHTV.transpose(1, 2).flatten(2))
        return out_BTD

    def _queries(self, x_BTD: Tensor) -> Tensor:
        w = self.config.widths
        y_BTE = self.q_proj(x_BTD) if w.q is None else self.q_b_proj(self.q_a_norm(self.q_a_proj(x_BTD)))
        q_BTHK: Tensor = y_BTE.unflatten(-1, (self.config.n_heads, w.nope + w.rope))
        return q_BTHK.transpose(1, 2)

    def _keys_and_values(self, kept_B1SE: Tensor) -> tuple[Tensor, Tensor]:
        """The readable form: every head's keys (B, H, S, K) and values (B, H, S, V), written out."""
        w, n_heads = self.config.widths, self.config.n_heads
        latent_BSC, rope_B1SR = kept_B1SE[:, 0, :, : w.kv], kept_B1SE[..., w.kv :]
        both_BSHE = self.kv_b_proj(latent_BSC).unflatten(-1, (n_heads, w.nope + w.value))
        nope_BHSN, v_BHSV = both_BSHE.transpose(1, 2).split([w.nope, w.value], dim=-1)
        return torch.cat([nope_BHSN, rope_B1SR.expand(-1, n_heads, -1, -1)], dim=-1), v_BHSV

    def _absorbed(self, q_BHTK: Tensor, kept_B1SE: Tensor, mask: BoundMask, p: Pass) -> Tensor:
        """The same without writing keys and values out (section 2.1.2): as q.(W_UK c) = (W_UK^T q).c, queries go to
        the latent's space, all heads look at what is kept itself, and its mix goes through W_UV. One query of 16
        heads on 4,096 tokens, float32, one core: 31 ms and not 1,385.
        """
        w = self.config.widths
        up_HEC = self.kv_b_proj.weight.unflatten(0, (self.config.n_heads, w.nope + w.value))
        to_latent_HNC, to_value_HVC = up_HEC.split([w.nope, w.value], dim=1)
        q_latent_BHTC = q_BHTK[..., : w.nope] @ to_latent_HNC
        q_BHTE = torch.cat([q_latent_BHTC, q_BHTK[..., w.nope :]], dim=-1)
        # What is kept serves as values as it stands, rotated key and all: one width, and no copy.
        mixed_BHTE = attend_fast(q_BHTE, kept_B1SE, kept_B1SE, mask, self._scoring(), p)
        z_BHTV: Tensor = mixed_BHTE[..., : w.kv] @ to_value_HVC.mT
        return z_BHTV

    def _absorbing_is_less(self, q_BHTK: Tensor, kept_B1SE: Tensor) -> bool:
        """Whether the absorbed form takes fewer multiplications a head and remembered token. A whole pass is always
        computed in the readable form.
        """
        w, n_queries, n_keys = self.config.widths, q_BHTK.shape[2], kept_B1SE.shape[2]
        absorbed = n_queries * (2 * w.kv + w.rope)
        readable = n_queries * (w.nope + w.rope + w.value) + w.kv * (w.nope + w.value)
        return n_keys > n_queries and absorbed < readable

    def _edited_raw_keys(self, raw_B1TE: Tensor, p: Pass) -> Tensor | None:
        """The keys before rotation, shown to whoever looks; what an edit made of them, or None."""
        mode = "none" if p.taps is None else p.taps.mode(self.path, "k_raw")
        if mode == "none":
            return None
        k_BHTK = p.tap(self.path, "k_raw", self._keys_and_values(raw_B1TE)[0])
        if mode == "edit" and p.state is not None:
            raise ClearheadError(
                f"{self.path}.k_raw can't be edited while a state is kept: latent attention remembers what keys are "
                f"made from, not keys; edit {self.path}.k, or give all tokens in one pass"
            )
        return k_BHTK if mode == "edit" else None

    def _tapped(self, k_BHSK: Tensor, v_BHSV: Tensor, p: Pass) -> tuple[Tensor, Tensor]:
        return p.tap(self.path, "k", k_BHSK), p.tap(self.path, "v", v_BHSV)

    def _scoring(self) -> Scoring:
        scores = self.config.scores
        dropout = scores.dropout if self.training else 0.0
        return Scoring(scale=self.scale, softcap=scores.softcap, sinks_H=self.sinks, dropout=dropout)


def _scale(config: LatentAttentionConfig) -> float:
    """K^-0.5, times what YaRN makes of it where it has an `mscale_all_dim`: the square of a gain on all dimensions."""
    if config.scores.scale is not None:
        return config.scores.scale
    gain = 1.0
    match config.positions.scaling:
        case YarnScaling(factor=factor, mscale_all_dim=mscale) if mscale:
            gain = yarn_gain(factor, mscale)
    return float((config.widths.nope + config.widths.rope) ** -0.5 * gain**2)
