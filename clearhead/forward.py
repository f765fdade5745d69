"""The pass: what every layer of one run needs to know, handed down instead of asked for.

It knows where the tokens stand, what was there before (the state), who looks (the taps) and which attention kernel
was asked for. What several layers need alike, such as a mask or a rotary table, it works out once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from clearhead.ops.masks import BoundMask, Everything, Mask, Positions
from clearhead.state import State
from clearhead.taps import Taps

T = TypeVar("T")

RELATIVE = "relative"
"""Under this the stack puts its table of relative positions into the pass, before its first layer."""


@dataclass(frozen=True)
class Places:
    """Where tokens stand as the encodings count them: positions that restart with each document."""

    positions: Positions
    lengths: int | Tensor
    """How many tokens the text that a token belongs to has so far: one number, or (B, 1) or (B, T)."""
    device: torch.device
    """Where what is made of them, such as masks, is wanted."""


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """What one stack is given to read; which of them it wants depends on its front."""

    tokens_BT: Int[Tensor, "B T"] | None = None
    token_types_BT: Int[Tensor, "B T"] | None = None
    pixels_BCHW: Float[Tensor, "B C height width"] | None = None
    frames_BMF: Float[Tensor, "B M F"] | None = None


@dataclass(frozen=True)
class Source:
    """What an encoder made of the source, for cross-attention to look at."""

    x_BSD: Float[Tensor, "B S d"]
    positions: Positions


class Kept:
    """What a pass has worked out. A thing by itself, so that copies of a pass share it: torch makes one for each block
    whose weights several processes share.
    """

    def __init__(self, values: dict[Hashable, Any]) -> None:
        self.values = values


@dataclass(kw_only=True)
class Pass:
    """One run of a model over B rows of T tokens."""

    positions: Positions
    """Absolute positions, for masks and states; -1 marks padding."""
    places: Places
    mask: Mask | None = None
    """The batch's part of the mask (documents, a caller's predicate), ANDed to each layer's own."""
    state: State | None = None
    source: Source | None = None
    taps: Taps | None = None
    backend: str = "auto"
    kept: Kept = field(default_factory=lambda: Kept({}), repr=False)

    @property
    def device(self) -> torch.device:
        return self.places.device

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` returns, made the first time `key` is asked for in this pass."""
        values = self.kept.values
        if key not in values:
            values[key] = make()
        value: T = values[key]
        return value

    def bound_mask(self, mask: Mask, keys: Positions) -> BoundMask:
        """A layer's mask together with the batch's, bound to this pass's queries and `keys`."""

        def bind() -> BoundMask:
            whole = mask if self.mask is None else mask & self.mask
            return BoundMask(whole, self.positions, keys, self.device)

        # `keys` is kept by the bound mask, so its id is not used again while this pass lives. This pass's own have no
        # need of one, which would be another in every pass: compiled code would be compiled anew for each.
        return self.once(("mask", mask, None if keys is self.positions else id(keys)), bind)

    def source_mask(self, keys: Positions) -> BoundMask:
        """Every token sees the whole source: its padding excepted."""
        own = self.source is not None and keys is self.source.positions
        key = ("source mask", None if own else id(keys))
        return self.once(key, lambda: BoundMask(Everything(), self.positions, keys, self.device))

    def alone(self) -> Pass:
        """This pass for one layer that shares nothing with the others, so that it may be compiled by itself, or run
        twice and do the same both times. Only what the stack gave to all is there.
        """
        positions = self.positions.anew()
        # That they are one and the same says that there are no documents.
        no_documents = self.places.positions is self.positions
        places = replace(self.places, positions=positions if no_documents else self.places.positions.anew())
        source = None if self.source is None else replace(self.source, positions=self.source.positions.anew())
        kept = Kept({key: value for key, value in self.kept.values.items() if key == RELATIVE})
        return replace(self, positions=positions, places=places, source=source, kept=kept)

    def tap(self, path: str, name: str, value: Tensor) -> Tensor:
        """Offer a value to whoever looks."""
        return value if self.taps is None else self.taps(path, name, value)


def positions_from(present_BT: Bool[Tensor, "B T"] | None, n_tokens: int, start: int | Int[Tensor, "B"]) -> Positions:
    """The positions of new tokens: present ones are counted on from `start`, padding gets -1.

    Rows that are full and start alike become a span, which costs no tensor and allows the fastest masks.
    """
    if present_BT is None or bool(present_BT.all()):
        if isinstance(start, int):
            return Positions(span=(start, start + n_tokens))
        return Positions(rows_BT=start[:, None] + torch.arange(n_tokens, device=start.device))
    counted = present_BT.cumsum(dim=1) - 1
    counted = counted + (start if isinstance(start, int) else start[:, None])
    return Positions(rows_BT=counted.masked_fill(~present_BT, -1))


def restart(positions: Positions, document_BT: Int[Tensor, "B T"]) -> tuple[Places, Int[Tensor, "B T"]]:
    """Positions counted anew from 0 in each run of one document, and for each token the number of its run.

    Padding belongs to the run of the token before it.
    """
    rows_BT = positions.rows(document_BT.device).expand_as(document_BT)
    there_BT = rows_BT >= 0
    slot_T = torch.arange(document_BT.shape[1], device=document_BT.device)
    # The last token at or before each slot, and of leading padding the first token.
    source_BT = torch.where(there_BT, slot_T, -1).cummax(dim=1).values
    first_B1 = there_BT.int().argmax(dim=1, keepdim=True)
    filled_BT = document_BT.gather(1, torch.where(source_BT < 0, first_B1, source_BT))
    changed = filled_BT[:, 1:] != filled_BT[:, :-1]
    run_BT = torch.cat([torch.zeros_like(document_BT[:, :1]), changed.cumsum(dim=1)], dim=1)
    far = rows_BT.max() + 1
    starts_BR = far.expand(run_BT.shape).scatter_reduce(1, run_BT, rows_BT.where(there_BT, far), "amin")
    counts_BR = torch.zeros_like(run_BT).scatter_add(1, run_BT, there_BT.long())
    places_BT = torch.where(there_BT, rows_BT - starts_BR.gather(1, run_BT), -1)
    return Places(Positions(rows_BT=places_BT), counts_BR.gather(1, run_BT), document_BT.device), run_BT
