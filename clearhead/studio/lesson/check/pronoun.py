"""How "it" comes to know of the trophy: a model's map, and what is left where attention is cut."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import Field
from torch import Tensor

from clearhead.lens import at, forbid, look, zero
from clearhead.lens.edit import Edits
from clearhead.model.transformer import Transformer
from clearhead.studio.context import Studio
from clearhead.studio.operations import Answer, operation

SENTENCE = "The {} did not fit in the suitcase because it was too big."
NOUN, PRONOUN = "trophy", "it"
OTHERS = ("statue", "painting", "guitar", "lamp", "sofa", "violin")
"""In its place stands the first of them that is as many tokens long."""
BEST, FEW = 8, 3
READERS = {"clear-gpt": "clear-gpt", "gemma3-270m": "Gemma 3 270M"}
"""By id, what they are called."""

PYTHON = """\
import clearhead
from clearhead.lens import at, forbid, zero

model = clearhead.load({model!r})
it, noun, heads = {it}, {noun}, {heads}
last = {last!r}

here = clearhead.look(model, {here!r})
layer, head = heads[{chosen}]
print("trophy, of what it reads:", float(here[f"layers.{{layer}}.mixer.pattern"][0, head, it, noun].sum()))

def moved(edits):
    # How far the vector of "it" moves when another noun stands there.
    a, b = (clearhead.look(model, text, last, edits=edits)[last][0, it] for text in ({here!r}, {there!r}))
    return float((a - b).norm() / a.norm())

def links(cut):
    return [
        {{f"layers.{{layer}}.mixer.scores": at(forbid, heads=[head], positions=[it], keys=noun)}}
        for layer, head in cut
    ]

print("nothing cut:", moved({{}}))
print("the link in the strongest head:", moved(links(heads[:1])))
print("the links in the strongest few:", moved(links(heads[:{few}])))
print("the link in every head:", moved({{"layers.*.mixer.scores": at(forbid, positions=[it], keys=noun)}}))
print("all that it reads:", moved({{"layers.*.mixer.z": at(zero, positions=[it])}}))
"""


class Text(NamedTuple):
    """The sentence in a model's tokens."""

    here: str
    there: str
    """With another noun."""
    other: str
    pieces: list[str]
    it: int
    noun: list[int]


class Strong(NamedTuple):
    """A head, and the share of what "it" reads there that comes from the noun."""

    share: float
    layer: int
    head: int


class Moved(NamedTuple):
    """How far a vector is from another, and how long it is."""

    apart: float
    length: float

    @property
    def share(self) -> float:
        return self.apart / self.length


class Measured(NamedTuple):
    """What is shown of a model whichever head is chosen."""

    text: Text
    heads: list[Strong]
    cuts: dict[str, Moved]


_KEPT: dict[str, Measured] = {}


@operation("check.pronoun")
def pronoun(
    studio: Studio,
    *,
    model: Literal["auto", "clear-gpt", "gemma3-270m"] = "auto",
    head: Annotated[int, Field(ge=0, lt=BEST)] = 0,
) -> Iterator[Answer]:
    """The pattern of one of the heads in which "it" looks most at "trophy"; and how far the vector of "it" moves when
    another noun stands in the trophy's place, with ever more of what "it" reads cut off.
    """
    missing = studio.models.missing.get("gemma3-270m")
    name = ("clear-gpt" if missing else "gemma3-270m") if model == "auto" else model
    data: dict[str, Any] = {
        "model": name,
        "called": READERS[name],
        "readers": [{"id": id, "name": called} for id, called in READERS.items()],
        "install": f'pip install "clearhead[{missing}]"' if missing else None,
    }
    if name == "gemma3-270m" and missing:
        yield Answer(data=data)
        return
    with studio.models.lock(name):
        loaded = studio.models.get(name)
        text, heads, cuts = _measured(name, loaded)
        chosen = heads[head]
        site = f"layers.{chosen.layer}.mixer.pattern"
        pattern_TS = look(loaded, text.here, site)[site][0, chosen.head]
    share = float(pattern_TS[text.it, text.noun].sum())
    yield Answer(
        data={
            **data,
            "tokens": text.pieces,
            "it": text.it,
            "noun": text.noun,
            "other": text.other,
            "heads": [strong._asdict() for strong in heads],
            "n_heads": _n_heads(loaded),
            "chosen": head,
            "share": share,
            "even": len(text.noun) / (text.it + 1),
            "cuts": {cut: moved.share for cut, moved in cuts.items()},
            "moved": {cut: moved._asdict() for cut, moved in cuts.items()},
            "few": FEW,
        },
        arrays={"pattern": pattern_TS},
        python=PYTHON.format(
            model=name,
            it=text.it,
            noun=text.noun,
            heads=[(strong.layer, strong.head) for strong in heads],
            chosen=head,
            last=_last(loaded),
            here=text.here,
            there=text.there,
            few=FEW,
        ),
        printed=(share, *(moved.share for moved in cuts.values())),
    )


def _measured(name: str, model: Transformer) -> Measured:
    """Made once a model; the caller holds its lock."""
    if name not in _KEPT:
        text = _text(model)
        heads = strongest(model, text)[:BEST]
        _KEPT[name] = Measured(text, heads, _cuts(model, text, heads))
    return _KEPT[name]


def _text(model: Transformer) -> Text:
    """The sentence, and the same with a noun of as many tokens in the trophy's place."""
    encode = model.tokenizer.encode
    noun = encode(f" {NOUN}", bos=False)
    other = next(word for word in OTHERS if len(encode(f" {word}", bos=False)) == len(noun))
    here, there = SENTENCE.format(NOUN), SENTENCE.format(other)
    ids = encode(here)
    first = next(i for i in range(len(ids)) if ids[i : i + len(noun)] == noun)
    (it,) = encode(f" {PRONOUN}", bos=False)
    pieces = model.tokenizer.pieces(ids)
    return Text(here, there, other, pieces, ids.index(it), list(range(first, first + len(noun))))


def strongest(model: Transformer, text: Text) -> list[Strong]:
    """All heads, those first in which the pronoun looks most at the noun."""
    found = [
        Strong(float(share), layer, head)
        for layer, pattern_BHTS in enumerate(look(model, text.here, "layers.*.mixer.pattern").values())
        for head, share in enumerate(pattern_BHTS[0, :, text.it, text.noun].sum(-1))
    ]
    return sorted(found, reverse=True)


def _cuts(model: Transformer, text: Text, heads: list[Strong]) -> dict[str, Moved]:
    """How far the pronoun's vector moves, over its length, with more and more cut."""

    def links(cut: list[Strong]) -> Edits:
        return [
            {f"layers.{one.layer}.mixer.scores": at(forbid, heads=[one.head], positions=[text.it], keys=text.noun)}
            for one in cut
        ]

    return {
        "nothing": moved(model, text, {}),
        "one": moved(model, text, links(heads[:1])),
        "few": moved(model, text, links(heads[:FEW])),
        "links": moved(model, text, {"layers.*.mixer.scores": at(forbid, positions=[text.it], keys=text.noun)}),
        "all": moved(model, text, {"layers.*.mixer.z": at(zero, positions=[text.it])}),
    }


def moved(model: Transformer, text: Text, edits: Edits) -> Moved:
    """How far the vector of the pronoun, after the last layer, is from that in the sentence with the other noun."""
    last = _last(model)

    def vector(sentence: str) -> Tensor:
        return look(model, sentence, last, edits=edits)[last][0, text.it]

    a_D, b_D = vector(text.here), vector(text.there)
    return Moved(float((a_D - b_D).norm()), float(a_D.norm()))


def _last(model: Transformer) -> str:
    return f"layers.{len(model.config.stack.blocks) - 1}.resid_post"


def _n_heads(model: Transformer) -> int:
    return sum(getattr(block.mixer.op, "n_heads", 0) for block in model.config.stack.blocks)
