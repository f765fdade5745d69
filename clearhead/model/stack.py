"""An embedding, a stack of blocks, and a norm."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

from clearhead import taps
from clearhead.config import AttentionConfig, RelativeBiasConfig, StackConfig
from clearhead.errors import ClearheadError
from clearhead.forward import RELATIVE, Inputs, Pass
from clearhead.nn.block import Block
from clearhead.nn.embedding import Embedding
from clearhead.nn.norm import Norm
from clearhead.ops.biases import RelativeBias


class Stack(nn.Module):
    """Tokens in, finished residual stream out."""

    def __init__(self, d_model: int, config: StackConfig) -> None:
        super().__init__()
        self.path = ""
        self.sites = taps.STACK
        self.embed = Embedding(d_model, config.embed)
        self.layers = nn.ModuleList(Block(d_model, block) for block in config.blocks)
        for block, owner in zip(self.layers, config.share or (), strict=False):
            _share(block, self.layers[owner])
        self.relative = _relative_table(config)
        self.norm = Norm(d_model, config.norm) if config.norm is not None else None

    def run(self, inputs: Inputs, p: Pass) -> Float[Tensor, "B T d"]:
        """Embed, pass through every block, norm."""
        if self.relative is not None:
            p.once(RELATIVE, self.relative)
        x_BTD = p.tap(self.path, "embed", self.embed(inputs, p))
        for block in self.layers:
            x_BTD = block(x_BTD, p)
        if self.norm is not None:
            x_BTD = self.norm(x_BTD)
        return p.tap(self.path, "final", x_BTD)


class RelativeTable(nn.Module):
    """A learned number for each bucket of distance and each head (Raffel 2020, section 2.1)."""

    def __init__(self, n_heads: int, config: RelativeBiasConfig, bidirectional: bool) -> None:
        super().__init__()
        self.max_distance = config.max_distance
        self.bidirectional = bidirectional
        self.weight = nn.Parameter(torch.empty(config.n_buckets, n_heads))

    def forward(self) -> RelativeBias:
        return RelativeBias(self.weight, self.bidirectional, self.max_distance)


def _relative_table(config: StackConfig) -> RelativeTable | None:
    """The one table of a stack whose layers look at distances."""
    tables = {
        # Each layer reads its own heads' columns of it, where some were cut off.
        (op.n_heads if kept is None else kept.of, op.positions, op.mask.kind == "full")
        for op, kept in ((block.mixer.op, block.mixer.kept) for block in config.blocks)
        if isinstance(op, AttentionConfig) and isinstance(op.positions, RelativeBiasConfig)
    }
    if len(tables) > 1:
        raise ClearheadError("the layers of a stack share one table of relative positions, and these ask for several")
    for n_heads, positions, bidirectional in tables:
        assert isinstance(positions, RelativeBiasConfig)
        return RelativeTable(n_heads, positions, bidirectional)
    return None


def _share(block: nn.Module, owner: nn.Module) -> None:
    """Let `block` run with the weights of `owner`, and still be a layer of its own to look into."""
    if block is owner:
        return
    kinds, owned = ([(name, p.shape) for name, p in module.named_parameters()] for module in (block, owner))
    if kinds != owned:
        raise ClearheadError("a block can run with the weights of another only where both have the same ones (share)")
    for theirs, ours in zip(owner.modules(), block.modules(), strict=True):
        for name, parameter in theirs.named_parameters(recurse=False):
            setattr(ours, name, parameter)
