"""Attention is the only place where tokens communicate: change one, and see which outputs move."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field

from clearhead.checkpoints.load import load
from clearhead.claims.scaled.only_attention import ATTENTION
from clearhead.lens import edit, zero
from clearhead.studio.explore.promptly import promptly
from clearhead.studio.kept import KeptResults
from clearhead.studio.operations import Answer, operation

if TYPE_CHECKING:
    from clearhead.studio.context import Studio

MODEL, TEXT, OTHER = "clear-gpt", "The cat sat on the mat because it was tired", " man"


@dataclass(frozen=True)
class Changes:
    """The tokens, the one that is put in, and by place: how much the scores of each token's next token change, at
    most, where the token at that place is the other one.
    """

    pieces: list[str]
    put_in: str
    by_place: list[list[float]]


_kept: KeptResults[Changes] = KeptResults(4)


@operation("attention.only")
def only(
    studio: Studio, *, place: Annotated[int, Field(ge=1, le=64)] = 2, talk: bool = True
) -> Answer | Iterator[Answer]:
    """place: the token that is changed. talk: with attention, or with what every layer's attention adds set to zero."""
    source = studio.models.source(MODEL)

    def told() -> Answer:
        found = _kept.of(studio.models, MODEL, talk, make=lambda _: _measure(source, talk))
        at = min(place, len(found.pieces) - 1)
        changes = found.by_place[at]
        return Answer(
            data={
                "tokens": found.pieces,
                "put_in": found.put_in,
                "place": at,
                "talk": talk,
                "changes": changes,
                "moved": sum(change > 0 for change in changes),
            },
            python=(
                "import torch\n"
                "import clearhead\n"
                "from clearhead.lens import zero\n\n"
                f"model = clearhead.load({source!r}, dtype=torch.float64)\n"
                f"tokens = torch.tensor([model.tokenizer.encode({TEXT!r})])\n"
                "changed = tokens.clone()\n"
                f"changed[0, {at}] = model.tokenizer.encode({OTHER!r}, bos=False)[0]\n"
                f"edits = {'{}' if talk else '{' + repr(ATTENTION) + ': zero}'}\n"
                "before, after = (clearhead.edit(model, x, edits)[0] for x in (tokens, changed))\n"
                "print(*(after - before).abs().amax(-1).tolist())\n"
            ),
            printed=tuple(changes),
        )

    return promptly(_kept.get(_kept.key(studio.models, MODEL, talk)) is not None, told)


def _measure(source: str, talk: bool) -> Changes:
    """In float64, so that what is zero is zero, by a model that is not kept."""
    model = load(source, dtype=torch.float64)
    assert model.tokenizer is not None
    tokens_BT = torch.tensor([model.tokenizer.encode(TEXT)])
    other = model.tokenizer.encode(OTHER, bos=False)[0]
    edits = {} if talk else {ATTENTION: zero}
    before_TV = edit(model, tokens_BT, edits)[0]
    by_place = []
    for place in range(tokens_BT.shape[1]):
        # One pass each: rows of one batch may be rounded differently, and nought would not be nought.
        other_BT = tokens_BT.clone()
        other_BT[0, place] = other
        by_place.append((edit(model, other_BT, edits)[0] - before_TV).abs().amax(-1).tolist())
    return Changes(model.tokenizer.pieces(tokens_BT[0].tolist()), model.tokenizer.pieces([other])[0], by_place)
