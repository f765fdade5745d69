"""Reading an attention pattern: is it a triangle, what are its strongest links, what is left when it is cut."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Link(NamedTuple):
    """One cell of a pattern: the token that looks, the token looked at, and how much."""

    query: int
    key: int
    weight: float


def is_triangle(pattern_TS: Tensor) -> bool:
    """Whether no token looks at a later one."""
    return pattern_TS.shape[0] == pattern_TS.shape[1] and not bool(pattern_TS.triu(1).any())


def strongest(pattern_TS: Tensor, query: int, most: int = 3, least: float = 0.05) -> list[Link]:
    """The links of one token, strongest first: at most `most` of them, and none below `least` but the first."""
    row_S = pattern_TS[query].float()
    values, keys = row_S.topk(min(most, row_S.numel()))
    links = [Link(query, int(key), float(value)) for key, value in zip(keys, values, strict=True)]
    return [link for place, link in enumerate(links) if link.weight >= least or (place == 0 and link.weight > 0)]


def last(pattern_TS: Tensor, n: int) -> Tensor:
    """The square of the last n tokens, with one more column in front: what each gave to all the tokens cut away."""
    first = pattern_TS.shape[1] - n
    shown = pattern_TS[-n:]
    return torch.cat([shown[:, :first].sum(dim=1, keepdim=True), shown[:, first:]], dim=1)
