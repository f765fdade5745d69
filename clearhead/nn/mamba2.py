"""Mamba-2: a scan with one decay a head, which is also attention with decays for a mask."""

from __future__ import annotations

from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from clearhead import taps
from clearhead.config import Mamba2Config, NormConfig
from clearhead.forward import Pass
from clearhead.layer_state import LayerState, ScanState
from clearhead.nn.convolution import CausalConvolution, Reading
from clearhead.nn.linear import Linear
from clearhead.nn.mamba import first_dt_bias
from clearhead.nn.norm import Norm
from clearhead.ops.scan import head_scan, head_states, head_step, read_head_states


class GroupedNorm(Norm):
    """A norm over each of `n_groups` equal parts of a vector, with one weight a number."""

    def __init__(self, width: int, n_groups: int, config: NormConfig) -> None:
        super().__init__(width, config)
        self.n_groups = n_groups

    def forward(self, x: Float[Tensor, "*shape d"]) -> Float[Tensor, "*shape d"]:
        if self.n_groups == 1:
            return super().forward(x)
        c = self.config
        parts = x.unflatten(-1, (self.n_groups, -1))
        if c.kind == "layer":
            parts = parts - parts.mean(-1, keepdim=True)
        unit = (parts * torch.rsqrt(parts.square().mean(-1, keepdim=True) + c.eps)).flatten(-2)
        y: Tensor = unit * (self.weight + c.offset)
        return y if self.bias is None else y + self.bias


class Mamba2(nn.Module):
    """out(norm((scan(conv(x)) + D x) * silu(z))), all from one projection (Dao and Gu 2024, section 7.1, figure 6).

    Heads of a group share what they write and read, as grouped heads of attention share keys.
    """

    sites: ClassVar[dict[str, str]] = taps.MAMBA2

    def __init__(self, d_model: int, config: Mamba2Config) -> None:
        super().__init__()
        c = self.config = config
        self.path = ""
        d_inner, d_groups = c.n_heads * c.d_head, c.n_groups * c.d_state
        self.widths = (d_inner, d_inner + 2 * d_groups, c.n_heads)
        self.in_proj = Linear(d_model, sum(self.widths), bias=c.bias)
        self.conv = CausalConvolution(self.widths[1], c.conv)
        self.dt_bias = nn.Parameter(torch.zeros(c.n_heads))
        self.A_log = nn.Parameter(torch.zeros(c.n_heads))
        self.D = nn.Parameter(torch.ones(c.n_heads))
        self.norm = GroupedNorm(d_inner, c.n_groups, c.norm)
        self.out_proj = Linear(d_inner, d_model, bias=c.bias)

    def first_values(self) -> dict[str, Tensor]:
        """Decays between 1 and 16, and step sizes as in Mamba."""
        n = self.config.n_heads
        return {
            "A_log": torch.empty(n).uniform_(1, 16).log(),
            "D": torch.ones(n),
            "dt_bias": first_dt_bias(n),
        }

    def new_state(self, capacity: int | None = None) -> LayerState:
        """An empty memory; its size does not depend on `capacity`."""
        return ScanState()

    def forward(self, x_BTD: Float[Tensor, "B T d"], p: Pass) -> Float[Tensor, "B T d"]:
        c = self.config
        reading = Reading.of(p)
        memory = None if p.state is None else cast(ScanState, p.state.at(self.path))
        tail_BWC, h_BHKN = (None, None) if memory is None else memory.recall()
        z_BTF, mixed_BTC, dt_BTH = self.in_proj(x_BTD).split(self.widths, dim=-1)
        mixed_BTC, tail_BWC = self.conv(mixed_BTC, tail_BWC, reading)

        dtype = torch.promote_types(x_BTD.dtype, torch.float32)
        dt_BTH = F.softplus(dt_BTH.to(dtype) + self.dt_bias).clamp(*c.dt_limit)
        dt_BTH = p.tap(self.path, "delta", reading.without_padding(dt_BTH))
        d_groups = c.n_groups * c.d_state
        x_BTF, B_BTC, C_BTC = mixed_BTC.to(dtype).split([self.widths[0], d_groups, d_groups], dim=-1)
        x_BTHK = x_BTF.unflatten(-1, (c.n_heads, c.d_head))
        B_BTGN, C_BTGN = (x.unflatten(-1, (c.n_groups, c.d_state)) for x in (B_BTC, C_BTC))
        y_BTHK, h_BHKN = self._scan(x_BTHK, dt_BTH, B_BTGN, C_BTGN, h_BHKN, reading, p)
        if memory is not None:
            memory.keep(x_BTD.shape[1], tail_BWC, h_BHKN)
        y_BTF = (y_BTHK + x_BTHK * self.D[:, None]).flatten(2)
        y_BTF = self.norm(y_BTF * F.silu(z_BTF.to(dtype)))
        out_BTD: Tensor = self.out_proj(y_BTF.to(x_BTD.dtype))
        return out_BTD

    def _scan(
        self,
        x_BTHK: Tensor,
        dt_BTH: Tensor,
        B_BTGN: Tensor,
        C_BTGN: Tensor,
        h_BHKN: Tensor | None,
        reading: Reading,
        p: Pass,
    ) -> tuple[Tensor, Tensor]:
        """What every token reads of the state, and the state after the last."""
        A_H = -torch.exp(self.A_log.to(x_BTHK.dtype))
        if h_BHKN is None:
            h_BHKN = x_BTHK.new_zeros(x_BTHK.shape[0], *x_BTHK.shape[2:], self.config.d_state)
        mode = "none" if p.taps is None else p.taps.mode(self.path, "state")
        if mode != "none":
            states = head_states(x_BTHK, dt_BTH, A_H, B_BTGN, h_BHKN, reading.start_BT)
            h_BTHKN = p.tap(self.path, "state", states)
        if mode == "edit" and not taps.as_it_was(states, h_BTHKN):
            return read_head_states(h_BTHKN, C_BTGN), h_BTHKN[:, -1].clone()
        if x_BTHK.shape[1] == 1 and reading.start_BT is None:
            y_BHK, h_BHKN = head_step(x_BTHK[:, 0], dt_BTH[:, 0], A_H, B_BTGN[:, 0], C_BTGN[:, 0], h_BHKN)
            return y_BHK[:, None], h_BHKN
        return head_scan(x_BTHK, dt_BTH, A_H, B_BTGN, C_BTGN, h_BHKN, reading.start_BT)
