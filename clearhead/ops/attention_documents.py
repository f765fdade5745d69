"""Attention over rows that hold several documents: each by itself, so that what is hidden costs nothing.

Documents of one length that stand side by side are one call, as a batch: texts sorted by their length and laid into one
row are read without padding, in as many calls as they have lengths.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

import torch
from torch import Tensor

from clearhead.ops.masks import BoundMask

Cut = tuple[tuple[int, int], ...]
"""A row's documents in order: a length, and how many of that length stand side by side."""
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]

CALL = 64
"""A call pays from so many tokens on that it has on average, with the gradient: 8 rows of 512, 4 heads of 64, one
thread: 64 documents 40 ms, 11 of them 121 ms, by a mask 129 ms."""
CALL_WITHOUT_GRADIENT = 8
"""And without: 1,024 tokens, 12 heads of 32, two threads, 8 ms by a mask and 0.04 ms a call."""


def apart(mask: BoundMask, q_BHTK: Tensor) -> tuple[Cut, ...] | None:
    """How each row is cut into documents, where going through them one by one pays."""
    if not q_BHTK.is_cpu or torch.compiler.is_compiling():  # lengths are read here, and are others in every batch
        return None
    documents = mask.documents
    if documents is None or len(documents) != q_BHTK.shape[0]:
        return None
    cuts = tuple(tuple((n, len(list(same))) for n, same in groupby(row)) for row in documents)
    n_calls = sum(len(cut) for cut, _ in groupby(cuts))
    n_tokens = q_BHTK.shape[0] * q_BHTK.shape[2]
    least = CALL if torch.is_grad_enabled() and q_BHTK.requires_grad else CALL_WITHOUT_GRADIENT
    return cuts if n_calls * least <= n_tokens else None


def by_document(q_BHTK: Tensor, k_BGSK: Tensor, v_BGSV: Tensor, cuts: tuple[Cut, ...], attend: Attend) -> Tensor:
    """Each document by itself, by `attend`; rows that are cut alike go together, and so do neighbours of one length."""
    alike = [(cut, len(list(rows))) for cut, rows in groupby(cuts)]
    # Cut where the tokens stand, before the heads: parts and their gradients are then put together without a copy more.
    of_groups = [y.transpose(1, 2).split([n for _, n in alike]) for y in (q_BHTK, k_BGSK, v_BGSV)]
    z_BTHV = []
    for (cut, n_rows), *rows in zip(alike, *of_groups, strict=True):
        parts = zip(*(y.split([n * many for n, many in cut], dim=1) for y in rows), strict=True)
        mixed = []
        for (n, _), part in zip(cut, parts, strict=True):
            z_NHTV = attend(*(y.unflatten(1, (-1, n)).flatten(0, 1).transpose(1, 2) for y in part))
            mixed.append(z_NHTV.transpose(1, 2).unflatten(0, (n_rows, -1)).flatten(1, 2))
        z_BTHV.append(torch.cat(mixed, dim=1))
    return torch.cat(z_BTHV).transpose(1, 2)
