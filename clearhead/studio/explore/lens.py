"""The logit lens over a text, a layer at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field
from torch import Tensor

from clearhead.errors import UsageError
from clearhead.lens.logit_lens import LogitLens, logit_lens_by_layer
from clearhead.studio.explore.passes import (
    Opened,
    code,
    most_tokens,
    named,
    opened,
    refuse_changed,
    token_named,
)
from clearhead.studio.explore.predict import Hidden, RunId, TokenOf
from clearhead.studio.operations import Answer, operation

if TYPE_CHECKING:
    from clearhead.studio.context import Studio

WIDEST = 64
"""Places that are read at once, whatever the vocabulary."""


@operation("explore.lens")
def lens(
    studio: Studio,
    *,
    run: RunId,
    hidden: Hidden = (),
    first: Annotated[int, Field(ge=0, le=100_000)] = 0,
    n: Annotated[int, Field(ge=1, le=WIDEST)] = 16,
    top: Annotated[int, Field(ge=1, le=20)] = 5,
    token: TokenOf = None,
) -> Iterator[Answer]:
    """What the model would say after each layer, at `n` places from the `first`. An answer a layer.

    token: one to follow; its probability and rank are given beside the likeliest tokens.
    """
    asked = opened(studio, run, hidden, what="the logit lens")
    refuse_changed(asked, "the logit lens")
    n_tokens = len(asked.ids)
    if first >= n_tokens:
        raise UsageError(f"there is no token {first}; this text has 0 to {n_tokens - 1}")
    places = list(range(first, min(first + min(n, most_tokens(asked.model, 2**25)), n_tokens)))
    target = token_named(asked, token)
    found = logit_lens_by_layer(asked.model, asked.inputs, target=target, top=top, positions=places)
    n_rows = len(asked.model.layers) + 1
    while True:
        with studio.models.lock(asked.run.model):
            table = next(found, None)
        if table is None:
            return
        yield _answer(asked, table, places, n_rows, target)


def _answer(asked: Opened, table: LogitLens, places: list[int], n_rows: int, target: int | None) -> Answer:
    ids_LTN = table.ids
    whole = len(table.row_labels) == n_rows
    data: dict[str, Any] = {
        "model": asked.run.model,
        "done": len(table.row_labels),
        "of": n_rows,
        "places": places,
        "tokens": [asked.run.tokens[place].text for place in places],
        "foretells": asked.foretells,
        "rows": table.row_labels,
        # Names of the newest row alone: those before were sent.
        "newest": [named(asked.model, row) for row in ids_LTN[-1].tolist()],
        "token": None if target is None else {"id": target, "text": named(asked.model, [target])[0]},
    }
    arrays = {
        "ids": ids_LTN.int(),
        "p": table.probabilities.float(),
        "logits": table.logits.float(),
        "log_sums": table.log_sums.float(),
    }
    if target is not None and table.ranks is not None and table.target_logits is not None:
        arrays |= {"followed": table.values.float(), "rank": table.ranks.int(), "above": (table.ranks - 1).int()}
        arrays["followed_logit"] = table.target_logits.float()
    if not whole:
        return Answer(data=data, arrays=arrays)
    data["settled"] = _settled(ids_LTN[..., 0])
    follow = f", target={target}" if target is not None else ""
    lines = [
        f"found = logit_lens(model, inputs, top={ids_LTN.shape[-1]}, positions={_span(places)}{follow})",
        "print(*found.values[:, -1].tolist())",
    ]
    return Answer(
        data=data,
        arrays=arrays,
        python=code(asked, ["from clearhead.lens import logit_lens"], *lines),
        printed=tuple(table.values[:, -1].tolist()),
    )


def _settled(best_LT: Tensor) -> list[int]:
    """Of each place, the row from which on the likeliest token is that of the last row."""
    is_last_LT = (best_LT == best_LT[-1]).int()
    return [len(best_LT) - n for n in is_last_LT.flip(0).cumprod(0).sum(0).tolist()]


def _span(places: list[int]) -> str:
    return f"range({places[0]}, {places[-1] + 1})"
