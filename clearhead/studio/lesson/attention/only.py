"""Attention is the only place where tokens communicate: change one, and see which outputs move."""

from __future__ import annotations

from functools import cache
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from clearhead.checkpoints.load import load
from clearhead.claims.scaled.only_attention import ATTENTION
from clearhead.lens import edit, zero
from clearhead.model.transformer import Transformer
from clearhead.studio.operations import Answer, operation

MODEL, TEXT, OTHER = "clear-gpt", "The cat sat on the mat because it was tired", " man"


@cache
def reader() -> tuple[Transformer, Tensor, int]:
    """The model, in float64 so that what is zero is zero; the sentence; and the token that is put in."""
    model = load(MODEL, dtype=torch.float64)
    assert model.tokenizer is not None
    tokens_BT = torch.tensor([model.tokenizer.encode(TEXT)])
    return model, tokens_BT, model.tokenizer.encode(OTHER, bos=False)[0]


@cache
def moved(place: int, talk: bool) -> list[float]:
    """How much the scores of each token's next token change, at most, where one token is another."""
    model, tokens_BT, other = reader()
    other_BT = tokens_BT.clone()
    other_BT[0, place] = other
    edits = {} if talk else {ATTENTION: zero}
    before_TV, after_TV = (edit(model, tokens, edits)[0] for tokens in (tokens_BT, other_BT))
    changes: list[float] = (after_TV - before_TV).abs().amax(-1).tolist()
    return changes


@operation("attention.only")
def only(*, place: Annotated[int, Field(ge=1, le=64)] = 2, talk: bool = True) -> Answer:
    """place: the token that is changed. talk: with attention, or with what every layer's attention adds set to zero."""
    model, tokens_BT, other = reader()
    place = min(place, tokens_BT.shape[1] - 1)
    changes = moved(place, talk)
    assert model.tokenizer is not None
    return Answer(
        data={
            "tokens": model.tokenizer.pieces(tokens_BT[0].tolist()),
            "put_in": model.tokenizer.pieces([other])[0],
            "place": place,
            "talk": talk,
            "changes": changes,
            "moved": sum(change > 0 for change in changes),
        },
        python=(
            "import torch\n"
            "import clearhead\n"
            "from clearhead.lens import zero\n\n"
            f"model = clearhead.load({MODEL!r}, dtype=torch.float64)\n"
            f"tokens = torch.tensor([model.tokenizer.encode({TEXT!r})])\n"
            "changed = tokens.clone()\n"
            f"changed[0, {place}] = model.tokenizer.encode({OTHER!r}, bos=False)[0]\n"
            f"edits = {'{}' if talk else '{' + repr(ATTENTION) + ': zero}'}\n"
            "before, after = (clearhead.edit(model, x, edits)[0] for x in (tokens, changed))\n"
            "print(*(after - before).abs().amax(-1).tolist())\n"
        ),
        printed=tuple(changes),
    )
