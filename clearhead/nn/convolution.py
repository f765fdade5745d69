"""A short convolution along the text, and the order in which something that reads token by token meets the tokens."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from clearhead.config import ConvConfig
from clearhead.errors import ClearheadError
from clearhead.forward import Pass
from clearhead.ops.activations import activation
from clearhead.ops.convolution import causal_convolution
from clearhead.ops.masks import SameDocument


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Which slots of a pass are read, and where a text begins anew. None everywhere: all slots, one text."""

    present_BT: Tensor | None = None
    start_BT: Tensor | None = None
    """The first tokens of documents."""
    order_BT: Tensor | None = None
    """The slots with the present ones first, in order."""
    back_BT: Tensor | None = None
    """Where in that order each slot is."""
    reach_BT: Tensor | None = None
    """How many tokens of the same document stand before each, in that order."""

    @staticmethod
    def of(p: Pass) -> Reading:
        """What a pass says of it, worked out once a pass.

        Raises:
            ClearheadError: the pass has a mask of the caller's, which a state can't follow.
        """
        return p.once("reading", lambda: _reading(p))

    def pack(self, x_BTC: Tensor) -> Tensor:
        """The present tokens of each row side by side, and padding behind them."""
        return x_BTC if self.order_BT is None else _taken(x_BTC, self.order_BT)

    def unpack(self, x_BTC: Tensor) -> Tensor:
        """Back to the slots they came from, with zeros at padding."""
        return x_BTC if self.back_BT is None else self.without_padding(_taken(x_BTC, self.back_BT))

    def without_padding(self, x_BTC: Tensor) -> Tensor:
        """Zeros at padding."""
        return x_BTC if self.present_BT is None else x_BTC.where(self.present_BT[:, :, None], 0.0)


def _reading(p: Pass) -> Reading:
    has_documents = p.places.positions is not p.positions
    if p.mask is not None and not (has_documents and isinstance(p.mask, SameDocument)):
        raise ClearheadError(
            "mask= says which token may look at which, and a recurrent or state-space layer keeps one state of all "
            "that it has read; leave the mask out, or use present= for padding and documents= for packed texts"
        )
    if p.positions.span is not None and not has_documents:
        return Reading()
    places_BT = p.places.positions.rows(p.device)
    present_BT = (p.positions.rows(p.device) >= 0).expand_as(places_BT)
    if not has_documents and bool(present_BT.all()):
        return Reading()
    order_BT = (~present_BT).int().argsort(dim=1, stable=True)
    return Reading(
        present_BT=present_BT,
        start_BT=places_BT == 0 if has_documents else None,
        order_BT=order_BT,
        back_BT=order_BT.argsort(dim=1),
        reach_BT=places_BT.gather(1, order_BT) if has_documents else None,
    )


def _taken(x_BTC: Tensor, slots_BT: Tensor) -> Tensor:
    return x_BTC.gather(1, slots_BT[:, :, None].expand(x_BTC.shape[0], -1, x_BTC.shape[2]))


class CausalConvolution(nn.Module):
    """act(conv(x)): each channel is mixed with its own last `width` values (Gu and Dao 2023, section 3.4)."""

    def __init__(self, n_channels: int, config: ConvConfig) -> None:
        super().__init__()
        self.config = config
        self.act = activation(config.activation)
        self.weight = nn.Parameter(torch.empty(n_channels, 1, config.width))
        self.bias = nn.Parameter(torch.zeros(n_channels)) if config.bias else None

    def first_values(self) -> dict[str, Tensor]:
        """Filters as torch's convolutions start with."""
        return {"weight": torch.empty(self.weight.shape).uniform_(-1, 1) * self.config.width**-0.5}

    def forward(
        self, x_BTC: Float[Tensor, "B T c"], tail_BWC: Float[Tensor, "B w c"] | None, reading: Reading
    ) -> tuple[Float[Tensor, "B T c"], Float[Tensor, "B w c"]]:
        """The convolved values, zero at padding, and the new tail: the last width - 1 inputs of each row."""
        n_before = self.config.width - 1
        x_BTC = reading.pack(x_BTC)
        x_BSC = F.pad(x_BTC, (0, 0, n_before, 0)) if tail_BWC is None else torch.cat([tail_BWC, x_BTC], dim=1)
        y_BTC = causal_convolution(x_BSC, self.weight[:, 0], self.bias, reading.reach_BT)
        if reading.present_BT is None:
            # A copy: a part would keep the whole alive.
            tail_BWC = x_BSC[:, x_BTC.shape[1] :].clone()
        else:
            end_B1 = reading.present_BT.sum(dim=1, keepdim=True)
            tail_BWC = _taken(x_BSC, end_B1 + torch.arange(n_before, device=end_B1.device))
        return reading.unpack(self.act(y_BTC)), tail_BWC
