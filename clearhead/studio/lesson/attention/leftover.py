"""Where weight goes that has nothing better to do, in a real model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from clearhead.claims.scaled.leftover_mass import FROM, WHERE, of_sentence
from clearhead.errors import UsageError
from clearhead.lens import look
from clearhead.studio.explore.promptly import promptly
from clearhead.studio.kept import KeptResults
from clearhead.studio.operations import Answer, operation

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.context import Studio

TEXT = "The cat sat on the mat because it was tired, and nobody in the house wanted to move it."
MOST = 128


@dataclass(frozen=True)
class Left:
    """The tokens of a text; how many of them ask, and how many weights there are in all; a layer's weight on each of
    `WHERE`, the mean of it over layers, and that of an even spread; the least weight; and the head that gives the
    first token most: its layer, its number and how much.
    """

    pieces: list[str]
    queries: int
    weights: int
    layers: list[list[float]]
    mean: list[float]
    even: list[float]
    least: float
    strongest: tuple[int, int, float]


_kept: KeptResults[Left] = KeptResults(12)


@operation("attention.leftover")
def leftover(
    studio: Studio,
    *,
    model: Annotated[str, Field(max_length=200)] = "clear-gpt",
    text: Annotated[str, Field(max_length=800)] = TEXT,
) -> Answer | Iterator[Answer]:
    """Of each layer, the share of attention on the first token, on punctuation and on the rest; and the least weight
    that any token gives to one it may see.
    """

    def told() -> Answer:
        left = _kept.of(studio.models, model, text, make=lambda net: _measure(net, model, text))
        layer, head, most = left.strongest
        return Answer(
            data={
                "model": model,
                "tokens": left.pieces,
                "kinds": WHERE,
                "from": FROM + 1,
                "queries": left.queries,
                "weights": left.weights,
                "mean": left.mean,
                "even": left.even,
                "least": left.least,
                "layers": left.layers,
                "strongest": {"layer": layer, "head": head, "share": most},
            },
            python=(
                "import clearhead\n"
                "from clearhead.claims.scaled.leftover_mass import of_sentence\n\n"
                f"model = clearhead.load({studio.models.source(model)!r})\n"
                f"share, even, least, lengths = of_sentence(model, {text!r})\n"
                "print(*share.mean(0).tolist())  # first token, punctuation, the rest\n"
                "print(*even.tolist())\n"
                "print(least)\n"
            ),
            printed=(*left.mean, *left.even, left.least),
        )

    return promptly(_kept.get(_kept.key(studio.models, model, text)) is not None, told)


def _measure(model: Transformer, id: str, text: str) -> Left:
    if model.tokenizer is None or getattr(model.config, "encoder", None) is not None:
        raise UsageError(f"{id} does not read a text from left to right; choose clear-gpt or another decoder")
    ids = model.tokenizer.encode(text)
    if not FROM < len(ids) <= MOST:
        raise UsageError(f"this text is {len(ids)} tokens long; write {FROM + 1} to {MOST}")
    share_L3, even_3, least, _ = of_sentence(model, text)
    seen = look(model, ids, "layers.*.mixer.pattern")
    # Layers may have different numbers of heads, and some have none.
    first = [
        (float(weight), int(address.split(".")[1]), head)
        for address, pattern_BHTS in seen.items()
        for head, weight in enumerate(pattern_BHTS[0, :, FROM:, 0].mean(-1))
    ]
    most, layer, head = max(first, key=lambda one: one[0])
    return Left(
        pieces=model.tokenizer.pieces(ids),
        queries=len(ids) - FROM,
        weights=sum(pattern_BHTS.shape[1] for pattern_BHTS in seen.values()) * len(ids) * (len(ids) + 1) // 2,
        layers=share_L3.tolist(),
        mean=share_L3.mean(0).tolist(),
        even=even_3.tolist(),
        least=least,
        strongest=(layer, head, most),
    )
