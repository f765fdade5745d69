"""What to put in the place of a value: zeros, a mean, another row's or another run's; a vector added; a way forbidden.

Each is an edit for `clearhead.edit` and `clearhead.look(edits=...)`, and `clearhead.lens.at` limits it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.edit import Edit, Function
from clearhead.lens.places import KEYS, ROWS, TOKENS, Site, Slots
from clearhead.lens.seen import Seen

MINUS_INFINITY = float("-inf")
Over = Literal["all", "rows", "positions"]


def zero(value: Tensor) -> Tensor:
    """Zeros; of scores, where nothing is masked."""
    return value.masked_fill(value != MINUS_INFINITY, 0)


def forbid(value: Tensor) -> Tensor:
    """Minus infinity: at `scores`, keys that are not looked at (attention knockout, Geva 2023, section 4); at
    `router_logits`, experts that are not chosen."""
    return torch.full_like(value, MINUS_INFINITY)


def steer(vector: Tensor, scale: float = 1.0) -> Edit:
    """Add `scale` times a vector (Turner 2023, activation addition): of any shape that can be added to the value."""
    return Steer(vector, scale)


def mean(seen: Seen | None = None, over: Over = "all") -> Edit:
    """The mean of what was `seen` at the same place, or of the value itself; tokens that are there count alike.

    over: "rows", a mean at each position (all texts of one length); "positions", one in each row; "all", one alone.

    Raises:
        ClearheadError: the place was not looked at, or a mean over positions would show a query what is hidden from it.
    """
    return Mean(seen, over)


def resample(seen: Seen | None = None, *, rows: Sequence[int] | None = None, seed: int = 0) -> Edit:
    """The value of another row: of what was `seen` at the same place, or of this batch.

    rows: which, one for each row here. None: drawn by `seed`, of this batch so that no row keeps its own; the same
    rows at every place.

    Raises:
        ClearheadError: the place was not looked at, or its texts have another length.
    """
    return Resample(seen, None if rows is None else tuple(rows), seed)


def patch(seen: Seen, *, address: str | None = None, positions: Mapping[int, int] | None = None) -> Edit:
    """The value that another run had, at the same place or at another `address`; one row there serves all rows here.

    positions: {position here: position there}, for texts that are not alike; others stay as they are.

    Raises:
        ClearheadError: the place was not looked at, or its texts have another length and no positions are given.
    """
    return Patch(seen, address, None if positions is None else dict(positions))


@dataclass(frozen=True)
class Steer:
    """See `steer`."""

    vector: Tensor
    scale: float

    def at_site(self, site: Site) -> Function:
        def steered(value: Tensor) -> Tensor:
            try:
                return value + (self.scale * self.vector).to(value).expand_as(value)
            except RuntimeError:
                shapes = f"{tuple(self.vector.shape)} can't be added to {tuple(value.shape)}"
                raise ClearheadError(f"{site.address}: a vector of shape {shapes}") from None

        return steered


@dataclass(frozen=True)
class Mean:
    """See `mean`."""

    seen: Seen | None
    over: Over

    def at_site(self, site: Site) -> Function:
        if self.over not in ("all", "rows", "positions"):
            raise ClearheadError(f'a mean is over "all", "rows" or "positions", not {self.over!r}')
        if self.over != "rows" and TOKENS in site.letters and KEYS in site.letters:
            raise ClearheadError(f'{site.address}: a mean over queries would look ahead; take over="rows"')
        letters = {"all": (ROWS, site.token_letter), "rows": (ROWS,), "positions": (site.token_letter,)}[self.over]
        axes = [site.axis(letter) for letter in letters]
        if self.seen is not None:
            known = _seen_at(self.seen, site.address)
            fixed = _mean(known, axes, site, self.seen.slots(site.stack(site.token_letter)))
            return lambda value: _fitted(fixed, value, site, axes)
        return lambda value: _mean(value, axes, site, site.slots(site.token_letter)).expand_as(value).clone()


def _mean(value: Tensor, axes: list[int], site: Site, slots: Slots | None) -> Tensor:
    """The mean over some axes, in which padding does not count."""
    if slots is None or slots.present_BT is None:
        return value.mean(dim=axes, keepdim=True)
    shape = [1] * value.ndim
    shape[0], shape[site.axis(site.token_letter)] = slots.present_BT.shape
    there = slots.present_BT.to(value.device).view(shape)
    return value.where(there, 0).sum(dim=axes, keepdim=True) / there.sum(dim=axes, keepdim=True).clamp(min=1)


@dataclass(frozen=True)
class Resample:
    """See `resample`."""

    seen: Seen | None
    rows: tuple[int, ...] | None
    seed: int

    def at_site(self, site: Site) -> Function:
        known = None if self.seen is None else _seen_at(self.seen, site.address)

        def resampled(value: Tensor) -> Tensor:
            source = value if known is None else known
            rows = self._drawn(len(value), len(source), own=known is None) if self.rows is None else list(self.rows)
            if len(rows) != len(value) or not all(-len(source) <= row < len(source) for row in rows):
                raise ClearheadError(
                    f"{site.address}: a row from 0 to {len(source) - 1} is wanted for each of {len(value)}, not {rows}"
                )
            return _fitted(source[rows], value, site)

        return resampled

    def _drawn(self, n: int, n_source: int, own: bool) -> list[int]:
        generator = torch.Generator().manual_seed(self.seed)
        if not own:
            return torch.randint(n_source, (n,), generator=generator).tolist()
        if n < 2:
            raise ClearheadError(
                "a row can't be given another's values where there is one alone; give seen= or more rows"
            )
        order = torch.randperm(n, generator=generator)
        rows = torch.empty_like(order)
        rows[order] = order.roll(1)  # one cycle through all: nobody keeps its own
        return rows.tolist()


@dataclass(frozen=True)
class Patch:
    """See `patch`."""

    seen: Seen
    address: str | None
    positions: dict[int, int] | None

    def at_site(self, site: Site) -> Function:
        known = _seen_at(self.seen, site.address if self.address is None else self.address)
        if self.positions is None:
            return lambda value: _fitted(known, value, site)
        here, there = list(self.positions), list(self.positions.values())
        letter = site.token_letter
        axis = site.axis(letter)
        site.check(here, letter)
        n = known.shape[axis]
        if any(not -n <= position < n for position in there):
            raise ClearheadError(f"{site.address} was seen at positions 0 to {n - 1}, not {there}")

        def patched(value: Tensor) -> Tensor:
            value = value.clone()
            for one, other in zip(here, there, strict=True):
                for place in site.places(value, [one], letter):
                    old = value.narrow(axis, place, 1)
                    old.copy_(_fitted(known.narrow(axis, other % n, 1), old, site))
            return value

        return patched


def _seen_at(seen: Seen, address: str) -> Tensor:
    if address not in seen:
        raise ClearheadError(
            f"{address} was not looked at in the run that an edit takes it from; there are {', '.join(seen)}"
        )
    return seen[address]


def _fitted(known: Tensor, value: Tensor, site: Site, shared: Sequence[int] = (0,)) -> Tensor:
    """A recorded value as one to use here: as long as the one here, or 1 along an axis that is `shared`."""
    shapes = zip(known.shape, value.shape, strict=False)
    fits = known.ndim == value.ndim and all(a == b or (a == 1 and i in shared) for i, (a, b) in enumerate(shapes))
    if not fits:
        raise ClearheadError(
            f"{site.address}: what was recorded has shape {tuple(known.shape)} and what is here {tuple(value.shape)}; "
            "record a text of the same length, or say which position goes where (patch(positions=...))"
        )
    return known.to(value).expand_as(value).clone()
