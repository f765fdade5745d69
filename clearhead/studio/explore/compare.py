"""Two runs side by side: a model and the same one with parts switched off, or two models on one text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import Field

from clearhead.errors import UsageError
from clearhead.lens.views.labels import visible
from clearhead.studio.explore.given import Token
from clearhead.studio.explore.passes import (
    Finished,
    Opened,
    check_size,
    code,
    finished,
    is_finished,
    most_tokens,
    named,
    opened,
)
from clearhead.studio.explore.predict import RunId
from clearhead.studio.explore.promptly import promptly
from clearhead.studio.explore.worked import log_sum, terms
from clearhead.studio.operations import Answer, operation

if TYPE_CHECKING:
    from clearhead.studio.context import Studio


@dataclass(frozen=True)
class Piece:
    """The least stretch of text that begins and ends between tokens of both."""

    text: str
    first: tuple[int, ...]
    """Places of the first run's tokens in it."""
    second: tuple[int, ...]


@operation("explore.compare")
def compare(
    studio: Studio,
    *,
    run: RunId,
    other_run: RunId,
) -> Iterator[Answer | None]:
    """What each of two runs of one text lost on it, piece by piece.

    Where both cut the text into the same tokens a piece is a token; else pieces end where both have an end, and the
    losses of a piece's tokens are summed: the logarithm of 1 over the probability of that stretch of text.
    """
    one, two = _both(studio, run, other_run)
    both = (one, two)
    pieces = aligned(one, two)
    losses = []
    for asked in both:
        found = finished(asked)
        yield None
        losses.append((yield from found.losing()))
    lost = [(_sum(losses[0], part.first), _sum(losses[1], part.second)) for part in pieces]
    counted = [(part, a, b) for part, (a, b) in zip(pieces, lost, strict=True) if a is not None and b is not None]
    totals = [sum(a for _, a, _ in counted), sum(b for _, _, b in counted)]
    characters = sum(len(part.text) for part, _, _ in counted)
    changes = [(abs(b - a), place) for place, (a, b) in enumerate(lost) if a is not None and b is not None]
    data: dict[str, Any] = {
        **_named(both),
        "widest": max(changes)[1] if changes else None,
        "same_tokens": one.ids == two.ids,
        "same_vocabulary": _same_vocabulary(one, two),
        "pieces": [
            {
                "text": _drawn(part.text),
                "tokens": [len(part.first), len(part.second)],
                "loss": [a, b],
                "p": [None if cost is None else math.exp(-cost) for cost in (a, b)],
                "change": None if a is None or b is None else b - a,
            }
            for part, (a, b) in zip(pieces, lost, strict=True)
        ],
        "tokens": [len(asked.ids) for asked in both],
        "totals": totals,
        "costs": [terms(loss) for loss in losses],
        "means": [float(loss.mean()) if len(loss) else 0.0 for loss in losses],
        "difference": totals[1] - totals[0],
        "characters": characters,
        "per_character": [total / characters if characters else 0.0 for total in totals],
    }
    yield Answer(data=data, python=_code(one, two), printed=tuple(data["means"]))


@operation("explore.behind")
def behind(
    studio: Studio,
    *,
    run: RunId,
    other_run: RunId,
    piece: Annotated[int, Field(ge=-100_000, le=100_000)] = -1,
    n: Annotated[int, Field(ge=1, le=50)] = 8,
) -> Answer | Iterator[Answer]:
    """What each of two runs of one text expects behind a piece of it. Where both have one vocabulary, the likeliest
    tokens of either with what both give them.
    """
    ready = is_finished(studio, run) and is_finished(studio, other_run)
    return promptly(ready, lambda: _behind(_both(studio, run, other_run), piece, n))


def _behind(both: tuple[Opened, Opened], piece: int, n: int) -> Answer:
    one, two = both
    pieces = aligned(one, two)
    if not -len(pieces) <= piece < len(pieces):
        raise UsageError(f"there is no piece {piece}; this text has 0 to {len(pieces) - 1}")
    place = piece % len(pieces)
    passes = [finished(asked) for asked in (one, two)]
    slots = [pieces[place].first[-1], pieces[place].second[-1]]
    following = [_next(found, slot, n) for found, slot in zip(passes, slots, strict=True)]
    data: dict[str, Any] = {
        **_named(both),
        "piece": place,
        "text": _drawn(pieces[place].text),
        "next": following,
        "log_sums": [log_sum(found.logits(slot)) for found, slot in zip(passes, slots, strict=True)],
        "slots": slots,
    }
    ids = [[row["id"] for row in rows] for rows in following]
    printed = [row["p"] for rows in following for row in rows]
    if _same_vocabulary(one, two):
        data["shared"] = _shared(passes, slots, n)
        ids = [[row["id"] for row in data["shared"]]] * 2
        printed = [row["p"][side] for side in (0, 1) for row in data["shared"]]
    programs = []
    for asked, slot, some in zip((one, two), slots, ids, strict=True):
        edits = ", edits=edits" if asked.run.ablate else ""
        lines = [
            f'seen = clearhead.look(model, inputs, "final", positions=[{slot}]{edits})',
            'p = model.head(seen["final"], model.embed.tokens.weight)[0, 0].softmax(-1)',
            f"print(*p[{some}].tolist())",
        ]
        programs.append(code(asked, [], *lines))
    return Answer(data=data, python="\n".join(programs), printed=tuple(printed))


def _named(both: Sequence[Opened]) -> dict[str, Any]:
    """Whose numbers an answer has."""
    return {"models": [asked.run.model for asked in both], "changed": [len(asked.run.ablate) for asked in both]}


def _both(studio: Studio, run: str, other_run: str) -> tuple[Opened, Opened]:
    """Both runs, of models that foretell.

    Raises:
        UsageError: one fills blanks, or the text is too long.
    """
    both = [opened(studio, one, what="comparing what models expect") for one in (run, other_run)]
    for asked in both:
        if not asked.foretells:
            raise UsageError(
                f"{asked.run.model} fills blanks and foretells no next token, so there is no loss of its own to compare"
            )
        check_size(asked, most_tokens(asked.model, 2**28), "a comparison")
    return both[0], both[1]


def _drawn(text: str) -> str:
    """A piece of text that is safe to draw, with its spaces seen."""
    return visible(text) if text.strip() != text or not text.isprintable() else text


def aligned(one: Opened, two: Opened) -> list[Piece]:
    """The text in pieces of both.

    Raises:
        UsageError: they read different texts, or nobody knows where their tokens stand.
    """
    first, second = one.run.tokens, two.run.tokens
    if one.ids == two.ids and _same_vocabulary(one, two):
        return [Piece(token.text, (place,), (place,)) for place, token in enumerate(first)]
    text = one.run.given.text
    if text is None or text != two.run.given.text:
        raise UsageError("the two runs read different texts; give both the same one")
    ours, theirs = (_placed(tokens) for tokens in (first, second))
    if not ours or not theirs:
        raise UsageError("where these models' tokens stand in the text is not known, so they can't be set side by side")
    cuts = sorted(_cuts(first, len(text)) & _cuts(second, len(text)))
    pieces = []
    for start, stop in pairwise(cuts):
        inside = [tuple(place for place, begin in placed if start <= begin < stop) for placed in (ours, theirs)]
        if all(inside):
            pieces.append(Piece(text[start:stop], *inside))
    if not pieces:
        raise UsageError("these models cut the text nowhere in the same place; give a text of several words")
    return pieces


def _placed(tokens: Sequence[Token]) -> list[tuple[int, int]]:
    """Places of the tokens that stand in the text, and where each begins."""
    return [(place, token.start) for place, token in enumerate(tokens) if token.start >= 0 and token.end > token.start]


def _cuts(tokens: Sequence[Token], n: int) -> set[int]:
    """Where no token stands on both sides: between characters, from 0 to the text's length."""
    within = {x for token in tokens if token.start >= 0 for x in range(token.start + 1, token.end)}
    return {x for x in range(n + 1) if x not in within}


def _same_vocabulary(one: Opened, two: Opened) -> bool:
    if one.model is two.model or one.run.model.partition("@")[0] == two.run.model.partition("@")[0]:
        return True
    a, b = one.model.tokenizer, two.model.tokenizer
    return a is not None and b is not None and a.core.get_vocab() == b.core.get_vocab()


def _sum(loss_T: torch.Tensor, places: Sequence[int]) -> float | None:
    """What the tokens at these places cost together; None where one of them was foretold by nothing."""
    if any(place == 0 for place in places):
        return None
    return float(loss_T[[place - 1 for place in places]].sum())


def _next(found: Finished, place: int, n: int) -> list[dict[str, Any]]:
    logits_V = found.logits(place)
    p_V = logits_V.softmax(-1)
    best = p_V.topk(min(n, len(p_V)))
    names = named(found.model, best.indices.tolist())
    return [
        {"id": i, "text": name, "p": p, "logit": float(logits_V[i])}
        for i, name, p in zip(best.indices.tolist(), names, best.values.tolist(), strict=True)
    ]


def _shared(passes: Sequence[Finished], slots: Sequence[int], n: int) -> list[dict[str, Any]]:
    """The likeliest tokens of either, with what both give them."""
    logits = [found.logits(slot) for found, slot in zip(passes, slots, strict=True)]
    p = [logits_V.softmax(-1) for logits_V in logits]
    size = min(map(len, p))
    ids = list(dict.fromkeys(i for one in p for i in one[:size].topk(min(n, size)).indices.tolist()))
    names = named(passes[0].model, ids)
    return [
        {
            "id": i,
            "text": name,
            "p": [float(one[i]) for one in p],
            "logits": [float(one[i]) for one in logits],
            "change": float(p[1][i]) - float(p[0][i]),
        }
        for i, name in zip(ids, names, strict=True)
    ]


def _code(one: Opened, two: Opened) -> str:
    """The mean loss of either, in nats a token."""
    programs = []
    for asked in (one, two):
        edits = "edits" if asked.run.ablate else "{}"
        lines = [
            f"logits = clearhead.edit(model, inputs, {edits})",
            f"ids = torch.tensor({list(asked.ids)})",
            "print(-log_probs(logits[0, :-1], ids[1:]).mean().item())",
        ]
        imports = ["import torch", "from clearhead.ops.sampling import log_probs"]
        programs.append(code(asked, imports, *lines))
    return "\n".join(programs)
