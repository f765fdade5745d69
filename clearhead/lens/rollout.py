"""Attention rollout: how much of each input token is in each place after so many layers (Abnar and Zuidema 2020)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
from torch import Tensor

from clearhead.config import PatchesConfig
from clearhead.errors import ClearheadError
from clearhead.lens.arguments import Inputs, arguments
from clearhead.lens.record import labels, look
from clearhead.lens.stream import additions
from clearhead.lens.table import Table
from clearhead.lens.targets import check_whole
from clearhead.lens.views.head_map import HeadMap
from clearhead.lens.views.labels import visible
from clearhead.lens.views.scale import Kind

if TYPE_CHECKING:
    from clearhead.model.stack import Stack
    from clearhead.model.transformer import Transformer

Heads = Literal["mean", "max", "min"]
JOIN: dict[Heads, Callable[[Tensor], Tensor]] = {
    "mean": lambda pattern_BHTS: pattern_BHTS.mean(1),
    "max": lambda pattern_BHTS: pattern_BHTS.amax(1),
    "min": lambda pattern_BHTS: pattern_BHTS.amin(1),
}


@dataclass(frozen=True, eq=False)
class Rollout(Table):
    """A row a place, a column an input token; rows sum to one."""

    corner: ClassVar[str] = "place \\ input"
    kind: ClassVar[Kind] = "share"
    layers_LTS: Tensor
    """The rollout up to each layer; `values` is the last."""

    def figure(self) -> HeadMap:
        """As the pattern of one head is drawn."""
        return HeadMap(self.title, self.values.float().cpu(), self.row_labels, self.column_labels)


def rollout(model: Transformer, inputs: Inputs, *, heads: Heads = "mean", part: str = "", row: int = 0) -> Rollout:
    """R_L = A_L R_(L-1), with A = (pattern + I) / 2: half of what a layer leaves is taken for what it brought, and half
    for what was there (section 3). Rows are made to sum to one, where a sink or another `heads` than the mean left
    less or more.

    part: a stack beside the model's own: "encoder", or "text" and "image" of two towers. Of a decoder it is its
    self-attention: what comes from a source is not in it. row: of a batch, the row to draw.

    Raises:
        ClearheadError: a layer without attention, through which nothing could be followed; a part or row that is not
            there.
    """
    stack = stack_of(model, part)
    mixers = [addition for addition in additions(stack) if addition.kind == "mixer"]
    without = [str(mixer.layer) for mixer in mixers if not mixer.has_heads]
    if without:
        raise ClearheadError(
            f"layers without attention ({', '.join(without)}) mix tokens in a way rollout can't follow"
        )
    if heads not in JOIN:
        raise ClearheadError(f"heads is {heads!r}; join them by {', '.join(JOIN)}")
    call = arguments(model, inputs)
    check_whole(call)
    seen = look(model, inputs, *(f"{mixer.op.path}.pattern" for mixer in mixers))
    patterns = list(seen.values())
    if not 0 <= row < patterns[0].shape[0]:
        raise ClearheadError(f"there is no row {row}; there are {patterns[0].shape[0]}")
    n = patterns[0].shape[-1]
    mixed_TS = torch.eye(n, dtype=torch.float64, device=patterns[0].device)
    layers = []
    for pattern_BHTS in patterns:
        own_TS = JOIN[heads](pattern_BHTS.double())[row] + torch.eye(n, device=pattern_BHTS.device)
        mixed_TS = own_TS / own_TS.sum(-1, keepdim=True) @ mixed_TS
        layers.append(mixed_TS)
    tokens_BT = call.others.get("source") if part == "encoder" else call.tokens_BT
    names = [visible(label) for label in labels(model, tokens_BT)[row]] if tokens_BT is not None else []
    if len(names) != n:
        names = place_names(stack, n, call.others.get("pixels"))
    return Rollout(
        title=f"Attention rollout, {heads} of heads",
        values=mixed_TS,
        row_labels=names,
        column_labels=names,
        layers_LTS=torch.stack(layers),
    )


def stack_of(model: Any, part: str) -> Stack:
    """The model's own stack, or the part of that name.

    Raises:
        ClearheadError: there is none of that name, or the model is none by itself.
    """
    stacks = {name: child for name, child in model.named_children() if hasattr(child, "layers")}
    if hasattr(model, "layers"):
        stacks[""] = model
    if part not in stacks:
        there = ", ".join(repr(name) for name in sorted(stacks)) or "none"
        raise ClearheadError(f"this model has no part {part!r}; its stacks are {there} (part=)")
    stack: Stack = stacks[part]
    return stack


def place_names(stack: Stack, n: int, pixels: Any = None) -> list[str]:
    """Names of places that are no tokens: of a picture's patches by row and column, of a sound's by number."""
    front = stack.embed.config.front
    if not isinstance(front, PatchesConfig):
        return [str(i) for i in range(n)]
    width = front.image[1] if not isinstance(pixels, Tensor) else pixels.shape[-1]
    across = width // front.patch
    learned = [f"learned {i}" if front.n_prefix > 1 else "learned" for i in range(front.n_prefix)]
    return learned + [f"{i // across},{i % across}" for i in range(n - front.n_prefix)]
