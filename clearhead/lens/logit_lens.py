"""The logit lens: what a model would say if it stopped after each layer (nostalgebraist 2020)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.arguments import Inputs, arguments
from clearhead.lens.pairs import given
from clearhead.lens.record import look
from clearhead.lens.table import Table, plain
from clearhead.lens.targets import Target, check_vocabulary, check_whole, token_ids, token_names
from clearhead.lens.views.labels import visible
from clearhead.lens.views.scale import Kind

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer


@dataclass(frozen=True, eq=False)
class LogitLens(Table):
    """A row a layer, the embedding first; a column a token of the text. `values` are probabilities: of the likeliest
    next token, or of the one asked for.
    """

    cells: list[list[str]]
    """The likeliest next token of each layer and place."""
    ids: Tensor
    """(rows, T, top): the likeliest tokens, best first."""
    probabilities: Tensor
    """(rows, T, top)."""
    ranks: Tensor | None
    """(rows, T): the place of the token asked for among all, 1 the likeliest; None where none was."""
    logits: Tensor
    """(rows, T, top): those of `ids`; a probability is exp(logit - log_sum)."""
    log_sums: Tensor
    """(rows, T): the logarithm of what the softmax of a place divides by."""
    target_logits: Tensor | None
    """(rows, T): those of the token asked for."""

    corner: ClassVar[str] = "layer \\ token"
    kind: ClassVar[Kind] = "share"
    note: ClassVar[str] = "After each layer the likeliest next token, coloured by its probability, or the target's."

    def to_json(self) -> dict[str, Any]:
        """Everything as plain lists and numbers, ready for `json.dumps`."""
        return {
            **super().to_json(),
            "cells": self.cells,
            "ids": self.ids.tolist(),
            "probabilities": plain(self.probabilities),
            "ranks": None if self.ranks is None else self.ranks.tolist(),
        }


def logit_lens(
    model: Transformer,
    inputs: Inputs,
    *,
    target: Target | None = None,
    top: int = 5,
    positions: Sequence[int] | None = None,
) -> LogitLens:
    """The stream after each layer through the model's own final norm and vocabulary head.

    Rows are the embedding and what each layer leaves; the last row is what the model says. inputs: one text, or what
    `model(...)` takes, of one row. target: a token to follow: `values` are then its probabilities, `ranks` its ranks.
    top: how many tokens to keep of each place. positions: read these slots of the text alone.

    Raises:
        ClearheadError: the model has no vocabulary head, there are several rows, or no such position.
    """
    *_, whole = logit_lens_by_layer(model, inputs, target=target, top=top, positions=positions)
    return whole


def logit_lens_by_layer(
    model: Transformer,
    inputs: Inputs,
    *,
    target: Target | None = None,
    top: int = 5,
    positions: Sequence[int] | None = None,
) -> Iterator[LogitLens]:
    """`logit_lens` as it comes: a table after each layer, with one row more than the one before."""
    check_vocabulary(model, "the logit lens")
    call = arguments(model, inputs)
    check_whole(call)
    target_1 = None if target is None else token_ids(model, target)
    n_layers = len(model.layers)
    places = ["embed", *(f"layers.{layer}.resid_post" for layer in range(n_layers))]
    # The logits of every slot are not asked for: of a large vocabulary they would be most of the memory.
    seen = look(model, {**given(call), "read": False}, *places, positions=positions)
    if seen["embed"].shape[0] != 1:
        raise ClearheadError(f"a logit lens is of one text, and there are {seen['embed'].shape[0]} rows")
    n_tokens = seen.output.shape[1]
    shown = range(n_tokens) if positions is None else [slot % n_tokens for slot in positions]
    tokens = [visible(label) for label in seen.tokens[0]] if seen.tokens else [str(i) for i in range(n_tokens)]
    n_kept = min(top, model.unembedding.shape[0])
    what = "" if target_1 is None else f": probability of {token_names(model, target_1)[0]}"
    ids, probabilities, followed, ranks = [], [], [], []
    logits, log_sums, followed_logits = [], [], []
    cells: list[list[str]] = []
    for place in places:
        logits_TV = read_out(model, seen[place])[0].float()
        p_TV = logits_TV.softmax(-1)
        best = p_TV.topk(n_kept, dim=-1)
        ids.append(best.indices)
        probabilities.append(best.values)
        logits.append(logits_TV.gather(-1, best.indices))
        log_sums.append(logits_TV.logsumexp(-1))
        cells.append(token_names(model, best.indices[:, 0]))
        if target_1 is not None:
            followed.append(p_TV[:, target_1[0]])
            followed_logits.append(logits_TV[:, target_1[0]])
            ranks.append(1 + (logits_TV > logits_TV[:, target_1]).sum(-1))
        yield LogitLens(
            title=f"Logit lens{what}",
            values=torch.stack(probabilities)[..., 0] if target_1 is None else torch.stack(followed),
            row_labels=["embedding", *(f"layer {layer}" for layer in range(n_layers))][: len(ids)],
            column_labels=[tokens[slot] for slot in shown],
            cells=list(cells),
            ids=torch.stack(ids),
            probabilities=torch.stack(probabilities),
            ranks=torch.stack(ranks) if ranks else None,
            logits=torch.stack(logits),
            log_sums=torch.stack(log_sums),
            target_logits=torch.stack(followed_logits) if followed_logits else None,
        )


@torch.no_grad()
def read_out(model: Transformer, x_BTD: Tensor) -> Tensor:
    """The logits (B, T, V) that the model's final norm and vocabulary head make of a stream (B, T, D)."""
    assert model.head is not None and model.embed.tokens is not None
    normed_BTD = x_BTD if model.norm is None else model.norm(x_BTD)
    logits_BTV: Tensor = model.head(normed_BTD, model.embed.tokens.weight)
    return logits_BTV
