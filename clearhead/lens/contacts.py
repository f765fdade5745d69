"""Which residues of a protein touch, read off where a model of proteins looks (Rao 2020, section 3.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.arguments import Inputs, arguments
from clearhead.lens.record import PATTERNS, look
from clearhead.lens.views.drawn import Drawn

if TYPE_CHECKING:
    from rich.console import Console

    from clearhead.model.transformer import Transformer


def contacts(model: Transformer, inputs: Inputs) -> Tensor:
    """How likely each pair of residues is to touch: (B, L, L), symmetric, the marks around a text left out.

    A logistic regression on the attention patterns of all heads: each made symmetric, and freed of what its rows and
    columns have anyway (average product correction). Shorter texts of a batch are filled up with zeros.

    Raises:
        ClearheadError: the model has no contact head.
    """
    head = getattr(model, "contacts", None)
    if head is None:
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
            rows.append(head(maps_CLL.permute(1, 2, 0)).squeeze(-1).sigmoid())
    longest = max(len(row) for row in rows)
    return torch.stack([torch.nn.functional.pad(row, (0, longest - len(row)) * 2) for row in rows])


@dataclass(frozen=True)
class ContactMap(Drawn):
    """The contacts of one protein, and its residues."""

    residues: tuple[str, ...]
    contacts_LL: Tensor

    title = "Contacts"
    note = "How likely each pair of residues is to touch, in percent."

    @property
    def values(self) -> Tensor:
        return self.contacts_LL

    @property
    def row_labels(self) -> list[str]:
        return [f"{residue}{place + 1}" for place, residue in enumerate(self.residues)]

    column_labels = row_labels

    def to_json(self) -> dict[str, Any]:
        return {"residues": list(self.residues), "contacts": self.contacts_LL.tolist()}

    def show(self, *, console: Console | None = None) -> None:
        """Draw it in the terminal, and list the likeliest pairs that are not neighbours in the chain."""
        from rich.console import Console as NewConsole

        from clearhead.lens.views.screen import theme_of
        from clearhead.lens.views.terminal import attention_map

        console = console or NewConsole()
        drawn = attention_map(self.contacts_LL, self.residues, width=console.width, theme=theme_of(console), key=False)
        console.print(drawn, soft_wrap=True)
        for i, j, p in self.likeliest():
            console.print(f"{self.row_labels[i]} - {self.row_labels[j]}  {p:.3f}", highlight=False)

    def likeliest(self, n: int = 8, apart: int = 6) -> list[tuple[int, int, float]]:
        """The `n` likeliest pairs at least `apart` residues from each other: what folding has brought together."""
        far_LL = self.contacts_LL.triu(apart)
        best = far_LL.flatten().topk(min(n, int((far_LL > 0).sum())))
        width = len(self.residues)
        return [(int(i) // width, int(i) % width, float(p)) for i, p in zip(best.indices, best.values, strict=True)]


def contact_map(model: Transformer, text: str) -> ContactMap:
    """The contacts of a protein given as text. Raises ClearheadError as `contacts` does."""
    map_LL = contacts(model, text)[0].float().cpu()
    ends = model.config.ids.eos
    pieces = [model.tokenizer.pieces([i])[0] for i in model.tokenizer.encode(text)[1:] if i not in ends]
    return ContactMap(tuple(pieces), map_LL)


def corrected(maps_CLL: Tensor) -> Tensor:
    """Each map plus its transpose, less what the sums of its row and column would give if nothing else mattered."""
    x_CLL = maps_CLL + maps_CLL.transpose(-1, -2)
    down, across = x_CLL.sum(-1, keepdim=True), x_CLL.sum(-2, keepdim=True)
    return x_CLL - down * across / x_CLL.sum((-1, -2), keepdim=True)
