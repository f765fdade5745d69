"""Direct logit attribution: which parts of a model wrote a logit, in parts that sum to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.arguments import Arguments, Inputs, arguments
from clearhead.lens.pulled import By, Parts, pull_back, taken_apart, wanted
from clearhead.lens.reading import read_direction
from clearhead.lens.record import labels, look
from clearhead.lens.seen import Seen
from clearhead.lens.stream import Addition, additions
from clearhead.lens.table import Table
from clearhead.lens.targets import (
    Target,
    check_vocabulary,
    check_whole,
    logits_of,
    slots,
    token_ids,
    token_names,
)
from clearhead.lens.views.labels import visible

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer


class Products(NamedTuple):
    """A dot product: its first pairs of factors, (some, 2), and of how many products it is the sum."""

    pairs: Tensor
    n: int


@dataclass(frozen=True, eq=False)
class Attribution(Table):
    """Of every row of the batch: a table of parts and the `others`, which together sum to `logit`.

    `values` is the mean over the batch.
    """

    by_row: Tensor
    """(B, rows, columns), NaN where there is nothing."""
    others: dict[str, Tensor]
    """What has no place in the table, (B,) each, by name."""
    logit: Tensor
    """The logit, or the difference of two, as the pass gave it: (B,)."""
    note: str
    """What has to be known of the sum, such as a soft-cap that follows."""
    products: dict[tuple[int, int] | str, Products]
    """How a part of the first text was made, by its row and column, or its name among the `others`."""

    @property
    def total(self) -> Tensor:
        """The sum of all parts, (B,)."""
        return self.by_row.nansum((1, 2)) + sum(self.others.values(), torch.zeros_like(self.logit))

    @property
    def error(self) -> float:
        """How far the sum is from the logit, in the worst row: rounding, and nothing else."""
        return float((self.total - self.logit).abs().max())

    def to_json(self) -> dict[str, Any]:
        """All as plain lists and numbers, ready for `json.dumps`; `others` and `logit` as means over the batch."""
        return {
            **super().to_json(),
            "others": {name: float(value.mean()) for name, value in self.others.items()},
            "logit": float(self.logit.mean()),
            "note": self.note,
        }


def attribution(
    model: Transformer,
    inputs: Inputs,
    target: Target | None = None,
    *,
    against: Target | None = None,
    position: int | Sequence[int] = -1,
    by: By = "layer",
) -> Attribution:
    """Where the logit of `target` at `position` comes from (Elhage 2021, section "logit attribution").

    target: a token, or one a row; without one, that which the model finds likeliest there. against: another token; the
    difference of the two logits is attributed then. by:
        "layer": a row a layer; what its mixer, its cross-attention and its feed-forward wrote.
        "head": a row a layer, a column a head (of cross-attention after those of the mixer).
        "neuron": a row a layer, a column a neuron of the feed-forward. Experts are not taken apart.
        "position": a row a sub-layer, a column a token (of the source after those of the text): what attention brought
            from there. What works within a token, and scans, count where they stand.

    Every norm between a part and the logit is taken with its scale as it was in this pass: then all is linear, and the
    parts sum to the logit exactly. That holds for norms after the addition too (post-norm), for norms of a correction
    (sandwich), and for the transform of a masked-language head, whose activation is frozen as a gate. A soft-cap on the
    logits is no scale: the logit before it is attributed, and `note` says so.

    Raises:
        ClearheadError: the model has no vocabulary head, is in training, or has not what is asked for.
    """
    if by not in get_args(By):
        raise ClearheadError(f"by is {by!r}; a logit is attributed by {', '.join(get_args(By))}")
    check_vocabulary(model, "attribution of a logit")
    if model.training:
        raise ClearheadError("the model is in training, where dropout makes each pass another; call model.eval()")
    call = arguments(model, inputs)
    check_whole(call)
    added = additions(model)
    if by in ("head", "neuron") and not any(taken_apart(a, by) for a in added):
        none = {"head": "no attention", "neuron": "no feed-forward that is one matrix of neurons"}[by]
        raise ClearheadError(f"this model has {none}, so there is nothing to attribute by {by}")
    last = f"layers.{len(model.layers) - 1}.resid_post"
    seen = look(model, inputs, *wanted(model, added, by), last)
    B, T = seen[last].shape[:2]
    slot_B = torch.tensor(slots(position, B, T, call))
    at = (torch.arange(B, device=model.device), slot_B.to(model.device))
    found_BV = logits_of(seen.output)[at].double()
    target_B = found_BV.argmax(-1) if target is None else token_ids(model, target, B)
    against_B = None if against is None else token_ids(model, against, B)

    reading = read_direction(model, seen[last][at], target_B, against_B)
    parts = pull_back(model, added, seen, at, reading.direction_BD, by)
    parts.biases.update(reading.constants)
    parts = parts.on_cpu()
    assert model.head is not None
    cap = model.head.config.softcap
    if cap is None:
        logit_B = found_BV[at[0], target_B] - (0.0 if against_B is None else found_BV[at[0], against_B])
    else:
        constants = sum(reading.constants.values(), torch.zeros(()))
        logit_B = (seen[last][at].double() * reading.direction_BD).sum(-1) + constants
    table = _by_token(added, parts, seen, slot_B) if by == "position" else _by_layer(added, parts, by)
    columns = _token_labels(model, seen, call, table.by_row.shape[-1]) if by == "position" else table.columns
    return Attribution(
        title=_title(model, target_B, against_B, by),
        values=table.by_row.mean(0),
        row_labels=table.rows,
        column_labels=columns,
        by_row=table.by_row,
        others={**table.others, **parts.biases},
        logit=logit_B.cpu(),
        products=table.products,
        note="" if cap is None else f"of the logit before the soft-cap of {cap:g}",
    )


@dataclass(frozen=True)
class _Layout:
    by_row: Tensor
    rows: list[str]
    columns: list[str]
    others: dict[str, Tensor]
    products: dict[tuple[int, int] | str, Products]


def _by_layer(added: list[Addition], parts: Parts, by: By) -> _Layout:
    """A row a layer; side by side the pieces of its mixer, of its cross-attention and of its feed-forward."""
    shown = [addition for addition in added if by == "layer" or taken_apart(addition, by)]
    layers = sorted({addition.layer for addition in shown})
    starts: dict[str, int] = {}
    columns: list[str] = []
    for kind in ("mixer", "cross", "ffn"):
        widths = [parts.pieces[addition.label].shape[1] for addition in shown if addition.kind == kind]
        if widths:
            starts[kind] = len(columns)
            names = [kind] if by == "layer" else [f"{kind} {i}" if columns else str(i) for i in range(max(widths))]
            columns += names
    n_rows = next(iter(parts.pieces.values())).shape[0]
    by_row = torch.full((n_rows, len(layers), len(columns)), torch.nan, dtype=torch.float64)
    products: dict[tuple[int, int] | str, Products] = {
        name: Products(parts.products[name][0], parts.lengths[name]) for name in parts.embedding
    }
    for addition in shown:
        row, pairs_NK2 = layers.index(addition.layer), parts.products[addition.label]
        for column, pairs_K2 in enumerate(pairs_NK2, starts[addition.kind]):
            products[row, column] = Products(pairs_K2, parts.lengths[addition.label])
        pieces_BN, start = parts.pieces[addition.label], starts[addition.kind]
        by_row[:, layers.index(addition.layer), start : start + pieces_BN.shape[1]] = pieces_BN
    whole = {a.label: parts.pieces[a.label].sum(-1) for a in added if a not in shown}
    rows = [f"layer {layer}" for layer in layers]
    return _Layout(by_row, rows, columns, {**parts.embedding, **whole}, products)


def _by_token(added: list[Addition], parts: Parts, seen: Seen, slot_B: Tensor) -> _Layout:
    """A row the embedding and a row a sub-layer; the text's tokens, and then the source's."""
    n_rows, n_tokens = seen["embed"].shape[:2]
    crossed = [parts.pieces[a.label].shape[1] for a in added if a.kind == "cross"]
    by_row = torch.zeros(n_rows, 1 + len(added), n_tokens + max(crossed, default=0), dtype=torch.float64)
    rows = torch.arange(n_rows)
    products: dict[tuple[int, int] | str, Products] = {}
    by_row[rows, 0, slot_B] = sum(parts.embedding.values(), torch.zeros(n_rows, dtype=torch.float64))
    for place, addition in enumerate(added, 1):
        pieces_BN, pairs_NK2 = parts.pieces[addition.label], parts.products[addition.label]
        apart = taken_apart(addition, "position")
        start = n_tokens if addition.kind == "cross" else 0
        for column, pairs_K2 in enumerate(pairs_NK2, start if apart else int(slot_B[0])):
            products[place, column] = Products(pairs_K2, parts.lengths[addition.label])
        if apart:
            by_row[:, place, start : start + pieces_BN.shape[1]] = pieces_BN
        else:
            by_row[rows, place, slot_B] = pieces_BN[:, 0]
    return _Layout(by_row, ["embedding", *(addition.label for addition in added)], [], {}, products)


def _token_labels(model: Transformer, seen: Seen, call: Arguments, n: int) -> list[str]:
    """The text's tokens and the source's; their numbers where there are several texts, or no tokens."""
    n_rows, n_tokens = seen["embed"].shape[:2]
    text, source = seen.tokens, labels(model, call.others.get("source"))
    if n_rows > 1:
        text = source = []
    own = [visible(label) for label in text[0]] if text else [str(i) for i in range(n_tokens)]
    looked_at = [visible(label) for label in source[0]] if source else [f"source {i}" for i in range(n - n_tokens)]
    return own + looked_at


def _title(model: Transformer, target_B: Tensor, against_B: Tensor | None, by: By) -> str:
    def name(ids_B: Tensor) -> str:
        return token_names(model, ids_B[:1])[0] if len(set(ids_B.tolist())) == 1 else "each row's token"

    what = f"The logit of {name(target_B)}" + ("" if against_B is None else f" less that of {name(against_B)}")
    return f"{what}, by {by}"
