"""The residual stream as what it is: a sum, one addition a sub-layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from clearhead.errors import ClearheadError
from clearhead.lens.frozen import FrozenNorm
from clearhead.nn.block import Norms
from clearhead.taps import address

if TYPE_CHECKING:
    from clearhead.lens.seen import Seen
    from clearhead.model.stack import Stack

AFTER = {"mixer": "resid_mid", "cross": "resid_cross", "ffn": "resid_post"}
"""The sub-layers of a block in order, and the stream that each leaves."""


@dataclass(frozen=True)
class Addition:
    """A sub-layer adds its correction to the stream; perhaps a norm follows, through which all before it goes too."""

    layer: int
    kind: str
    """mixer, cross or ffn."""
    op: Any
    norms: Norms
    scale: float
    before: str
    """The address of the stream that is added to."""

    @property
    def label(self) -> str:
        return f"layer {self.layer} {self.kind}"

    @property
    def out(self) -> str:
        """The address of what is added."""
        return f"{self.op.path}.out"

    @property
    def has_heads(self) -> bool:
        """Whether what it adds is a sum over attention heads."""
        return "z" in self.op.sites

    @property
    def has_neurons(self) -> bool:
        """Whether what it adds is a sum over neurons."""
        return "post" in self.op.sites

    @property
    def output_matrix(self) -> nn.Linear:
        """What writes to the stream, of a sub-layer with heads or neurons."""
        matrix: nn.Linear = self.op.o_proj if self.has_heads else self.op.down_proj
        return matrix

    def addresses(self) -> list[str]:
        """What has to be seen of it."""
        return [self.out] if self.norms.after is None else [self.before, self.out]

    def norm_after(self, seen: Seen, slots: Any = ...) -> FrozenNorm | None:
        """The norm that follows, frozen as it was at `slots` of (B, T)."""
        if self.norms.after is None:
            return None
        return FrozenNorm(self.norms.after, (seen[self.before] + seen[self.out])[slots])


def additions(stack: Stack) -> list[Addition]:
    """All of a stack's, in order. `stack` is a model, or its encoder.

    Raises:
        ClearheadError: something takes the place of the stream, which then is no sum.
    """
    found: list[Addition] = []
    for layer, block in enumerate(stack.layers):
        before = f"{block.path}.resid_pre"
        for kind, after in AFTER.items():
            op = getattr(block, kind)
            if op is not None:
                if not getattr(block.config, kind).residual:
                    raise ClearheadError(
                        f"{op.path} takes the place of the stream and adds nothing to it, so there is no sum to take "
                        "apart; this is for models whose sub-layers add (SublayerConfig.residual)"
                    )
                norms, scale = getattr(block, f"{kind}_norm"), getattr(block.config, kind).scale
                found.append(Addition(layer, kind, op, norms, scale, before))
                before = f"{block.path}.{after}"
    return found


def embedding_parts(stack: Stack, seen: Seen, slots: Any = ...) -> dict[str, Tensor]:
    """What the embedding summed, as it stands in the stream: its terms by name, and what is added whatever they are
    ("bias"). In float64.
    """
    embed, path = stack.embed, stack.embed.path
    terms = {name: seen[f"{path}.{name}"][slots].double() for name in embed.sites}
    constant: Tensor | None = None
    if embed.norm is not None:
        norm = FrozenNorm(embed.norm, torch.stack(list(terms.values())).sum(0))
        terms = {name: norm.map(term) for name, term in terms.items()}
        constant = norm.bias_D
    if embed.project is not None:
        weight_DW, bias_D = embed.project.weight.detach().double(), embed.project.bias.detach().double()
        terms = {name: term @ weight_DW.T for name, term in terms.items()}
        constant = bias_D if constant is None else constant @ weight_DW.T + bias_D
    if constant is not None:
        terms["bias"] = constant.expand_as(next(iter(terms.values())))
    # Where padding enters as zeros, so do its parts.
    there = seen[address(stack.path, "embed")][slots].ne(0).any(-1, keepdim=True)
    terms = {name: term * there for name, term in terms.items()}
    names = {"front": "tokens" if embed.tokens is not None else "input"}
    return {f"embedding: {names.get(name, name)}": term for name, term in terms.items()}
