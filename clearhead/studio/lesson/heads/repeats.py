"""An induction head at work: a text ends in a word that was there before, and what followed it is expected again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field

from clearhead.errors import UsageError
from clearhead.lens import at, edit, look, zero
from clearhead.lens.edit import Edits
from clearhead.studio.explore.promptly import promptly
from clearhead.studio.kept import KeptResults
from clearhead.studio.operations import Answer, operation

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.context import Studio

TEXT = (
    "Mr Dursley was the director of a firm that made drills. Every morning at eight he kissed his wife, picked up his "
    "bag and drove to work. On that Tuesday nobody in the street saw the car leave, and nobody saw Mr"
)
MOST = 256
MODEL = "clear-2l"
SHOWN = 6


def earlier(words: list[str]) -> int:
    """The place after the earlier occurrence of the text's end: of the longest part that stands there twice, and of
    several the latest. -1 where the last token has not been there before. Spaces don't count: "Mr" may begin a text.
    """
    best, where = 0, -1
    for i in range(len(words) - 2):
        n = 0
        while n <= i and words[i - n] == words[-1 - n]:
            n += 1
        if n >= best and n:
            best, where = n, i + 1
    return where


@dataclass(frozen=True)
class Reading:
    """A model before the end of a text: the tokens, the place to look at, and the heads, of which each gives that place
    some of its last query's attention: (weight, layer, head), the most first.
    """

    text: str
    ids: list[int]
    pieces: list[str]
    where: int
    whole: str
    """The word that begins at the place; nothing where the place is in the middle of one."""
    heads: list[tuple[float, int, int]]
    working: tuple[float, float]
    """Of the head that comes first: its score for the place, and the logarithm of the sum over all places."""

    @property
    def n_layers(self) -> int:
        return 1 + max(layer for _, layer, _ in self.heads)

    @property
    def n_heads(self) -> list[int]:
        """Of each layer: they may differ, and a layer without attention has none."""
        return [sum(layer == one for _, layer, _ in self.heads) for one in range(self.n_layers)]


@dataclass(frozen=True)
class Expected:
    """The probability of the token that followed the first time, and the likeliest tokens with theirs; the scores that
    these come from, and the logarithm of the sum of their exponentials over the vocabulary.
    """

    target: float
    best: list[tuple[str, float]]
    target_score: float
    best_scores: list[float]
    log_sum: float


_readings: KeptResults[Reading] = KeptResults(6)
_expected: KeptResults[Expected] = KeptResults(64)


def _read(model: Transformer, id: str, text: str) -> Reading:
    """Read a text, or our own where there is none.

    Raises:
        UsageError: the model does not go on with a text, or the text is too long or does not repeat.
    """
    tokenizer = model.tokenizer
    if tokenizer is None or getattr(model.config, "encoder", None) is not None or model.head is None:
        raise UsageError(f"{id} does not go on with a text; choose clear-2l, clear-gpt or another decoder")
    if not text.strip():
        # A tokenizer that spells "Mr" out gets one letter of the name as well, for there is more than one "r".
        text = TEXT if len(tokenizer.encode(" Mr", bos=False)) == 1 else f"{TEXT} D"
    ids = tokenizer.encode(text.rstrip())
    if len(ids) > MOST:
        raise UsageError(f"this text is {len(ids)} tokens long; the figure reads {MOST}")
    pieces = tokenizer.pieces(ids)
    where = earlier([piece.removeprefix("·") for piece in pieces])
    if where < 0:
        raise UsageError(
            "the last word did not occur before; end the text with a word that did, and stop there, as in "
            '"Mr Dursley ... Mr"'
        )
    seen = look(model, ids, "layers.*.mixer.pattern", positions=[-1])
    heads = [
        (weight, int(address.split(".")[1]), head)
        for address, pattern_BHTS in seen.items()
        for head, weight in enumerate(pattern_BHTS[0, :, 0, where].tolist())
    ]
    begins = pieces[where].startswith("·")
    whole = tokenizer.decode(ids[where : where + 4]).strip().split(" ")[0] if begins else ""
    heads.sort(key=lambda one: -one[0])
    _, layer, head = heads[0]
    name = f"layers.{layer}.mixer.scores"
    score_S = look(model, ids, name, positions=[-1])[name][0, head, 0].float()
    working = float(score_S[where]), float(score_S.logsumexp(-1))
    return Reading(text, ids, pieces, where, whole, heads, working)


def _expect(model: Transformer, reading: Reading, off: int) -> Expected:
    """What comes next, with what these heads mix set to zero."""
    edits: Edits = {f"layers.{layer}.mixer.z": at(zero, heads=heads) for layer, heads in _gone(reading, off).items()}
    score_P = edit(model, reading.ids, edits)[0, -1].float()
    next_P = score_P.softmax(-1)
    assert model.tokenizer is not None
    best, target = next_P.topk(5).indices, reading.ids[reading.where]
    words = [(model.tokenizer.pieces([int(token)])[0], float(next_P[token])) for token in best]
    return Expected(
        float(next_P[target]), words, float(score_P[target]), score_P[best].tolist(), float(score_P.logsumexp(-1))
    )


def _gone(reading: Reading, off: int) -> dict[int, list[int]]:
    """The `off` heads that look there most, by layer."""
    by_layer: dict[int, list[int]] = {}
    for _, layer, head in reading.heads[:off]:
        by_layer.setdefault(layer, []).append(head)
    return dict(sorted(by_layer.items()))


@operation("heads.repeats")
def repeats(
    studio: Studio,
    *,
    model: Annotated[str, Field(max_length=200)] = MODEL,
    text: Annotated[str, Field(max_length=1500)] = "",
    off: Annotated[int, Field(ge=0, le=32)] = 0,
) -> Answer | Iterator[Answer]:
    """How much each head looks, from the last word, at what followed it the first time; what is expected next; and what
    without the `off` heads that look there most.
    """

    def told() -> Answer:
        reading = _readings.of(studio.models, model, text, make=lambda net: _read(net, model, text))

        def expected(n: int) -> Expected:
            return _expected.of(studio.models, model, text, n, make=lambda net: _expect(net, reading, n))

        both = expected(0), expected(off)
        return _answer(model, studio.models.source(model), reading, both, off)

    keys = [_expected.key(studio.models, model, text, n) for n in (0, off)]
    is_read = _readings.get(_readings.key(studio.models, model, text)) is not None
    return promptly(is_read and all(_expected.get(key) is not None for key in keys), told)


def _answer(model: str, source: str, reading: Reading, both: tuple[Expected, Expected], off: int) -> Answer:
    before, after = both
    there_LH = torch.zeros(reading.n_layers, max(reading.n_heads))
    for weight, layer, head in reading.heads:
        there_LH[layer, head] = weight
    return Answer(
        data={
            "model": model,
            "text": reading.text,
            "tokens": reading.pieces,
            "where": reading.where,
            "word": reading.pieces[reading.where],
            "whole": reading.whole,
            "n_heads": reading.n_heads,
            "heads": [
                {"layer": layer, "head": head, "weight": weight} for weight, layer, head in reading.heads[:SHOWN]
            ],
            "gone": [(layer, head) for _, layer, head in reading.heads[:off]],
            "off": off,
            "working": dict(zip(("score", "log_sum"), reading.working, strict=True)),
            "scores": [{"score": one.target_score, "log_sum": one.log_sum} for one in both],
            "before": before.target,
            "after": after.target,
            "next": [
                {"text": text, "share": share, "score": score}
                for (text, share), score in zip(after.best, after.best_scores, strict=True)
            ],
        },
        arrays={"there": there_LH},
        python=_code(source, reading, off),
        printed=(before.target, after.target),
    )


def _code(source: str, reading: Reading, off: int) -> str:
    edits = "".join(
        f'    "layers.{layer}.mixer.z": at(zero, heads={heads}),\n' for layer, heads in _gone(reading, off).items()
    )
    return (
        "import clearhead\nfrom clearhead.lens import at, zero\n\n"
        f"model = clearhead.load({source!r})\nids = model.tokenizer.encode({reading.text.rstrip()!r})\n"
        f"edits = {{\n{edits}}}\n"
        "for change in ({}, edits):\n"
        "    next_token = clearhead.edit(model, ids, change)[0, -1].float().softmax(-1)\n"
        f"    print(next_token[ids[{reading.where}]].item())\n"
    )
