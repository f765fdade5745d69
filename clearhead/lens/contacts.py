"""Which residues of a protein touch, read off where a model of proteins looks (Rao 2020, section 3.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.arguments import Inputs, arguments
from clearhead.lens.record import PATTERNS, look

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer


def contacts(model: Transformer, inputs: Inputs) -> Tensor:
    """How likely each pair of residues is to touch: (B, L, L), symmetric, the marks around a text left out.

    A logistic regression on the attention patterns of all heads: each made symmetric, and freed of what its rows and
    columns have anyway (average product correction). Shorter texts of a batch are filled up with zeros.

    Raises:
        ClearheadError: the model has no contact head.
    """
    if model.contacts is None:
        raise ClearheadError("this model has no contact head; models of proteins such as ESM-2 have one")
    seen, call = look(model, inputs, PATTERNS), arguments(model, inputs)
    assert call.tokens_BT is not None
    present_BT = call.others.get("present", torch.ones_like(call.tokens_BT, dtype=torch.bool))
    ends = torch.tensor(model.config.ids.eos, device=call.tokens_BT.device)
    patterns_BCTT = torch.cat(list(seen.values()), dim=1)
    rows = []
    for tokens_T, present_T, patterns_CTT in zip(call.tokens_BT, present_BT, patterns_BCTT, strict=True):
        residue_T = present_T & ~torch.isin(tokens_T, ends)
        residue_T[int(present_T.int().argmax())] = False  # the mark at the start
        maps_CLL = corrected(patterns_CTT[:, residue_T][:, :, residue_T])
        with torch.no_grad():
            rows.append(model.contacts(maps_CLL.permute(1, 2, 0)).squeeze(-1).sigmoid())
    longest = max(len(row) for row in rows)
    return torch.stack([torch.nn.functional.pad(row, (0, longest - len(row)) * 2) for row in rows])


def corrected(maps_CLL: Tensor) -> Tensor:
    """Each map plus its transpose, less what the sums of its row and column would give if nothing else mattered."""
    x_CLL = maps_CLL + maps_CLL.transpose(-1, -2)
    down, across = x_CLL.sum(-1, keepdim=True), x_CLL.sum(-2, keepdim=True)
    return x_CLL - down * across / x_CLL.sum((-1, -2), keepdim=True)
