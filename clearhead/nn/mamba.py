"""Mamba: a mixer whose memory has one size however long the text."""

from __future__ import annotations

import math
from typing import ClassVar, cast

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from clearhead import taps
from clearhead.config import MambaConfig
from clearhead.forward import Pass
from clearhead.layer_state import LayerState, ScanState
from clearhead.nn.convolution import CausalConvolution, Reading
from clearhead.nn.linear import Linear
from clearhead.nn.norm import Norm
from clearhead.nn.packing import linear
from clearhead.ops.scan import read_states, selective_scan, selective_states, selective_step


def first_dt_bias(n: int) -> Tensor:
    """softplus^-1 of step sizes drawn evenly in their logarithm, 0.001 to 0.1 (Gu and Dao 2023, section 3.6)."""
    dt = torch.exp(torch.empty(n).uniform_(math.log(0.001), math.log(0.1)))
    return dt + torch.log(-torch.expm1(-dt))


class Mamba(nn.Module):
    """out(scan(conv(x)) * silu(z)) with x and z from one projection (Gu and Dao 2023, section 3.4 and figure 3).

    The step size, what is written and what is read depend on the token: that is what makes the scan selective.
    """

    read_by_hand: ClassVar = ("dt_proj",)
    """Parts whose weights are read, and which are never called."""
    sites: ClassVar[dict[str, str]] = taps.MAMBA

    def __init__(self, d_model: int, config: MambaConfig) -> None:
        super().__init__()
        c = self.config = config
        self.path = ""
        self.in_proj = Linear(d_model, 2 * c.d_inner, bias=c.bias)
        self.conv = CausalConvolution(c.d_inner, c.conv)
        self.x_proj = Linear(c.d_inner, c.dt_rank + 2 * c.d_state, bias=False)
        self.dt_proj = Linear(c.dt_rank, c.d_inner)
        self.A_log = nn.Parameter(torch.zeros(c.d_inner, c.d_state))
        self.D = nn.Parameter(torch.ones(c.d_inner))
        self.out_proj = Linear(c.d_inner, d_model, bias=c.bias)
        self.dt_norm = self.B_norm = self.C_norm = None
        if c.inner_norm is not None:
            self.dt_norm = Norm(c.dt_rank, c.inner_norm)
            self.B_norm, self.C_norm = Norm(c.d_state, c.inner_norm), Norm(c.d_state, c.inner_norm)

    def first_values(self) -> dict[str, Tensor]:
        """Decays of 1 to N in every channel, and steps of every size between (section 3.6)."""
        c = self.config
        return {
            "A_log": torch.arange(1, c.d_state + 1).log().expand(c.d_inner, -1),
            "D": torch.ones(c.d_inner),
            "dt_proj.weight": torch.empty(c.d_inner, c.dt_rank).uniform_(-1, 1) * c.dt_rank**-0.5,
            "dt_proj.bias": first_dt_bias(c.d_inner),
        }

    def new_state(self, capacity: int | None = None) -> LayerState:
        """An empty memory; its size does not depend on `capacity`."""
        return ScanState()

    def forward(self, x_BTD: Float[Tensor, "B T d"], p: Pass) -> Float[Tensor, "B T d"]:
        reading = Reading.of(p)
        memory = None if p.state is None else cast(ScanState, p.state.at(self.path))
        tail_BWF, h_BFN = (None, None) if memory is None else memory.recall()
        x_BTF, z_BTF = self.in_proj(x_BTD).chunk(2, dim=-1)
        x_BTF, tail_BWF = self.conv(x_BTF, tail_BWF, reading)
        wide_BTF = x_BTF.to(torch.promote_types(x_BTF.dtype, torch.float32))
        y_BTF, h_BFN = self._scan(wide_BTF, *self._select(x_BTF, reading, p), h_BFN, reading, p)
        if memory is not None:
            memory.keep(x_BTD.shape[1], tail_BWF, h_BFN)
        y_BTF = (y_BTF + wide_BTF * self.D) * F.silu(z_BTF)
        out_BTD: Tensor = self.out_proj(y_BTF.to(x_BTD.dtype))
        return out_BTD

    def _select(self, x_BTF: Tensor, reading: Reading, p: Pass) -> tuple[Tensor, Tensor, Tensor]:
        """Each token's step size (B, T, F), what it writes and what it reads (B, T, N), in float32 or wider."""
        c = self.config
        dt_BTR, B_BTN, C_BTN = self.x_proj(x_BTF).split([c.dt_rank, c.d_state, c.d_state], dim=-1)
        if self.dt_norm is not None and self.B_norm is not None and self.C_norm is not None:
            dt_BTR, B_BTN, C_BTN = self.dt_norm(dt_BTR), self.B_norm(B_BTN), self.C_norm(C_BTN)
        dtype = torch.promote_types(x_BTF.dtype, torch.float32)
        dt_BTF = linear(dt_BTR, self.dt_proj.weight).to(dtype) + self.dt_proj.bias
        dt_BTF = p.tap(self.path, "delta", reading.without_padding(F.softplus(dt_BTF)))
        return dt_BTF, B_BTN.to(dtype), C_BTN.to(dtype)

    def _scan(
        self,
        x_BTF: Tensor,
        dt_BTF: Tensor,
        B_BTN: Tensor,
        C_BTN: Tensor,
        h_BFN: Tensor | None,
        reading: Reading,
        p: Pass,
    ) -> tuple[Tensor, Tensor]:
        """What every token reads of the state, and the state after the last."""
        A_FN = -torch.exp(self.A_log.to(x_BTF.dtype))
        if h_BFN is None:
            h_BFN = x_BTF.new_zeros(x_BTF.shape[0], *A_FN.shape)
        mode = "none" if p.taps is None else p.taps.mode(self.path, "state")
        if mode != "none":
            states = selective_states(x_BTF, dt_BTF, A_FN, B_BTN, h_BFN, reading.start_BT)
            h_BTFN = p.tap(self.path, "state", states)
        if mode == "edit" and not taps.as_it_was(states, h_BTFN):
            return read_states(h_BTFN, C_BTN), h_BTFN[:, -1].clone()
        if x_BTF.shape[1] == 1 and reading.start_BT is None:
            y_BF, h_BFN = selective_step(x_BTF[:, 0], dt_BTF[:, 0], A_FN, B_BTN[:, 0], C_BTN[:, 0], h_BFN)
            return y_BF[:, None], h_BFN
        return selective_scan(x_BTF, dt_BTF, A_FN, B_BTN, C_BTN, h_BFN, reading.start_BT)
