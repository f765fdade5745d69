"""From tokens to the first state of the residual stream."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from clearhead.config import EmbedConfig, LearnedPositions, SinusoidalPositions
from clearhead.errors import ClearheadError
from clearhead.forward import Pass
from clearhead.nn.norm import Norm
from clearhead.ops.positions import sinusoids


class Embedding(nn.Module):
    """dropout(norm(scale * table[token] + position))."""

    def __init__(self, d_model: int, config: EmbedConfig) -> None:
        super().__init__()
        self.config = config
        self.d_model = d_model
        self.tokens = _table(config.front.vocab_size, d_model)
        table = config.positions
        self.positions = _table(table.n, d_model) if isinstance(table, LearnedPositions) else None
        self.norm = Norm(d_model, config.norm) if config.norm is not None else None

    def forward(self, tokens_BT: Int[Tensor, "B T"], p: Pass) -> Float[Tensor, "B T d"]:
        c = self.config
        x_BTD = self.tokens(tokens_BT)
        if c.scale != 1.0:
            # The factor is rounded to the table's dtype first, as published models were trained.
            x_BTD = x_BTD * torch.tensor(c.scale, dtype=x_BTD.dtype).item()
        if c.positions is not None:
            x_BTD = x_BTD + self._positions(c.positions, p).to(x_BTD.dtype)
        if self.norm is not None:
            x_BTD = self.norm(x_BTD)
        return F.dropout(x_BTD, c.dropout, self.training)

    def _positions(self, config: LearnedPositions | SinusoidalPositions, p: Pass) -> Tensor:
        places = p.places.positions
        place_BT = places.rows(p.device).clamp(min=0)
        longest = places.span[1] if places.span is not None else int(place_BT.max()) + 1
        if longest > config.n:
            raise ClearheadError(
                f"the text is {longest} tokens long, and this model has positions for {config.n}; shorten it"
            )
        if self.positions is not None:
            table: Tensor = self.positions(place_BT)
            return table
        assert isinstance(config, SinusoidalPositions)
        return sinusoids(place_BT, self.d_model, config.layout)


def _table(n: int, width: int) -> nn.Embedding:
    """An embedding without values: drawing them here would be for nothing, and on the meta device slow."""
    return nn.Embedding(n, width, _weight=torch.empty(n, width))
