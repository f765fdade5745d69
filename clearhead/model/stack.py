"""An embedding, a stack of blocks, and a norm."""

from __future__ import annotations

from typing import ClassVar

from jaxtyping import Float, Int
from torch import Tensor, nn

from clearhead import taps
from clearhead.config import StackConfig
from clearhead.forward import Pass
from clearhead.nn.block import Block
from clearhead.nn.embedding import Embedding
from clearhead.nn.norm import Norm


class Stack(nn.Module):
    """Tokens in, finished residual stream out."""

    sites: ClassVar[dict[str, str]] = taps.STACK

    def __init__(self, d_model: int, config: StackConfig) -> None:
        super().__init__()
        self.path = ""
        self.embed = Embedding(d_model, config.embed)
        self.layers = nn.ModuleList(Block(d_model, block) for block in config.blocks)
        self.norm = Norm(d_model, config.norm) if config.norm is not None else None

    def run(self, tokens_BT: Int[Tensor, "B T"], p: Pass) -> Float[Tensor, "B T d"]:
        """Embed, pass through every block, norm."""
        x_BTD = p.tap(self.path, "embed", self.embed(tokens_BT, p))
        for block in self.layers:
            x_BTD = block(x_BTD, p)
        if self.norm is not None:
            x_BTD = self.norm(x_BTD)
        return p.tap(self.path, "final", x_BTD)
