"""What a head may be told apart by: cells of a pattern that it would fill if it did this one thing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class PlaceAim:
    """Cells that follow from places alone, such as "the token before": the same in every row of a batch."""

    name: str
    query_N: Tensor
    key_N: Tensor


@dataclass(frozen=True)
class TokenAim:
    """Cells that follow from what the tokens are. A cell counts `weight_N`: 1 where the head should look, -1 at a rival
    that only a head that can't tell the two apart would look at as well.
    """

    name: str
    row_N: Tensor
    query_N: Tensor
    key_N: Tensor
    weight_N: Tensor
    n_queries: int

    @staticmethod
    def of(name: str, cells: Sequence[tuple[int, int, int, float]]) -> TokenAim:
        """From (row, query, key, weight) of each cell."""
        columns = list(zip(*cells, strict=True)) or [(), (), (), ()]
        row, query, key = (torch.tensor(column, dtype=torch.long) for column in columns[:3])
        asked = {(row, query) for row, query, _, weight in cells if weight > 0}
        return TokenAim(name, row, query, key, torch.tensor(columns[3], dtype=torch.float32), len(asked))


FAR = 4
"""The furthest offset that is asked about by itself."""


def text_places(n: int, both_ways: bool, end: bool) -> list[PlaceAim]:
    """Places of a text of n tokens. Queries are those past its first quarter, which may see enough to choose from.

    both_ways: whether tokens see what comes later. end: whether the last token is a mark of the tokenizer's.
    """
    query_N = torch.arange(n // 4, n)
    aims = [PlaceAim("first token", query_N, torch.zeros_like(query_N)), PlaceAim("itself", query_N, query_N)]
    if end:
        aims.append(PlaceAim("end token", query_N, torch.full_like(query_N, n - 1)))
    for offset in (step for k in range(1, FAR + 1) for step in ((-k, k) if both_ways else (-k,))):
        there_N = query_N[(query_N + offset > 0) & (query_N + offset < n)]
        aims.append(PlaceAim(offset_name(offset), there_N, there_N + offset))
    return aims


def offset_name(offset: int) -> str:
    names = {-1: "previous token", 1: "next token"}
    return names.get(offset, f"{abs(offset)} {'back' if offset < 0 else 'ahead'}")


def patch_places(down: int, across: int, n_prefix: int) -> list[PlaceAim]:
    """Places of a picture cut into down x across patches, behind `n_prefix` learned tokens."""
    number = torch.arange(down * across).view(down, across)

    def pairs(dy: int, dx: int) -> tuple[Tensor, Tensor]:
        """Each patch that has one at (dy, dx) of it, and that one."""
        inside = number[max(0, -dy) : down - max(0, dy), max(0, -dx) : across - max(0, dx)].flatten() + n_prefix
        return inside, inside + dy * across + dx

    sides = {"above": (-1, 0), "below": (1, 0), "left": (0, -1), "right": (0, 1)}
    every = number.flatten() + n_prefix
    aims = [PlaceAim("itself", every, every)]
    if n_prefix:
        aims.append(PlaceAim("first token", every, torch.zeros_like(every)))
    queries, keys = (torch.cat(parts) for parts in zip(*(pairs(*side) for side in sides.values()), strict=True))
    aims.append(PlaceAim("neighbouring patch", queries, keys))
    return aims + [PlaceAim(f"patch {name}", *pairs(*side)) for name, side in sides.items()]
