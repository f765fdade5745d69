"""`at`: an edit of some heads, positions, keys, experts or rows, and of nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.edit import Edit, Function, bound
from clearhead.lens.places import EXPERTS, HEADS, KEYS, KV_HEADS, ROWS, TOKENS, Site
from clearhead.taps import check_edit

Some = Sequence[int] | None


def at(
    edit: Function | Edit,
    *,
    heads: Some = None,
    positions: Some = None,
    keys: Some = None,
    experts: Some = None,
    rows: Some = None,
) -> Edit:
    """`edit`, of which only the chosen part is used: everything else keeps every bit.

    heads: query heads; at `k_raw`, `k` and `v`, where heads are grouped, the heads of keys and values.
    positions: slots of the text (padding counts), from 0; negative ones from the last of the pass. Queries where a
        place has queries and keys. Of cross-attention's `k` and `v`, and of an encoder, slots of the source.
    keys: of `scores` and `pattern`, the slots looked at.
    experts: of `router_logits`.
    rows: of the batch.
    While generating, a position is one of the whole text, and -1 in each step the token that it reads.

    Raises:
        ClearheadError: before the run, what a place has none of, or a number out of range.
    """
    return Limited(edit, {"heads": heads, "positions": positions, "keys": keys, "experts": experts, "rows": rows})


@dataclass(frozen=True)
class Limited:
    """See `at`."""

    edit: Function | Edit
    parts: dict[str, Some]

    def at_site(self, site: Site) -> Function:
        inner = bound(self.edit, site)
        limits = [(_letter(site, what), list(part)) for what, part in self.parts.items() if part is not None]
        for letter, part in limits:
            _check(site, letter, part)

        def limited(value: Tensor) -> Tensor:
            new = inner(value.clone())
            check_edit(site.address, value, new)
            chosen = torch.ones((), dtype=torch.bool, device=value.device)
            for letter, part in limits:
                axis = site.axis(letter)
                there = torch.zeros(value.shape[axis], dtype=torch.bool, device=value.device)
                there[_places(site, value, letter, part)] = True
                chosen = chosen & there.view(-1, *[1] * (value.ndim - axis - 1))
            return torch.where(chosen, new, value)

        return limited


def _letter(site: Site, what: str) -> str:
    """The axis that a limit is about."""
    wanted = {
        "heads": (HEADS, KV_HEADS),
        "positions": (TOKENS, KEYS),
        "keys": (KEYS,),
        "experts": (EXPERTS,),
        "rows": (ROWS,),
    }[what]
    found = next((letter for letter in wanted if letter in site.letters), None)
    if found is None or (what == "keys" and TOKENS not in site.letters):
        has = " x ".join(site.letters)
        raise ClearheadError(f"{site.address} has no {what} to choose: it is {has}")
    return found


def _check(site: Site, letter: str, part: list[int]) -> None:
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in part):
        raise ClearheadError(f"{site.address}: what an edit is limited to are whole numbers, not {part!r}")
    if letter in (TOKENS, KEYS):
        site.check(part, letter)
        return
    n = site.sizes.get(letter)
    wrong = [] if n is None else [number for number in part if not 0 <= number < n]
    if n is not None and wrong:
        what = "experts" if letter == EXPERTS else "heads" if letter == HEADS else "heads of keys and values"
        raise ClearheadError(f"{site.address} has {what} 0 to {n - 1}, not {wrong[0]}")


def _places(site: Site, value: Tensor, letter: str, part: list[int]) -> list[int]:
    if letter in (TOKENS, KEYS):
        return site.places(value, part, letter)
    n = value.shape[site.axis(letter)]
    if any(not -n <= number < n for number in part):
        raise ClearheadError(f"{site.address} has rows 0 to {n - 1} here, not {part}")
    return part
