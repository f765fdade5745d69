"""Chapter 5: what order is to attention, and the sinusoids that tell it (S34 to S37)."""

from __future__ import annotations

import math
from functools import cache, lru_cache
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor

from clearhead.checkpoints.load import load
from clearhead.claims.positions.distance_only import FARTHEST, order_kept, similarity
from clearhead.claims.positions.dog_bites_man import without_positions
from clearhead.claims.positions.linear_shift import WIDTH as CLOCK_WIDTH
from clearhead.claims.positions.linear_shift import rotation
from clearhead.errors import UsageError
from clearhead.model.transformer import Transformer
from clearhead.ops import positions
from clearhead.ops.masks import Causal
from clearhead.studio.operations import Answer, operation

BASE = 10_000.0
SHOWN = 32
"""So many of a vector's numbers are drawn."""
MOST_TOKENS = 10
PLACES = 301
"""Places along the axis of the similarity curve."""
MEASURED = 200
"""So many places are each compared with those up to `FARTHEST` on."""
NEAR, FAR = (1, 5), (100, FARTHEST)
"""Distances that are called near and far, from the first to the last."""

Kind = Literal["none", "causal", "rotary"]


# ---- shuffle the words


@cache
def _encoder(kind: Kind) -> Transformer:
    """clear-bert in float64: as it was trained, or the same weights without positions."""
    if kind == "causal":
        return _encoder("none")
    model = load("clear-bert")
    assert isinstance(model, Transformer)
    return (model if kind == "rotary" else without_positions(model)).double()


@operation("positions.shuffle")
def shuffle(
    *,
    text: Annotated[str, Field(min_length=1, max_length=80)] = "dog bites man",
    order: Annotated[list[Annotated[int, Field(ge=0, lt=MOST_TOKENS)]], Field(max_length=MOST_TOKENS)] | None = None,
    kind: Kind = "none",
) -> Answer:
    """What comes out of an encoder for some words, and for the same ones in another order.

    order: which word stands first, second, ...; the order of the text where there is none, or it does not fit the
        text. A word of several tokens moves as one.

    Raises:
        UsageError: the text has more tokens than fit, or none.
    """
    words = _words(text)
    fits = order is not None and sorted(order) == list(range(len(words)))
    placed = list(order) if fits and order is not None else list(range(len(words)))
    before_TD = _read(kind, tuple(token for word in words for token in word.ids))
    after_TD = _read(kind, tuple(token for i in placed for token in words[i].ids))
    moved_T = [slot for i in placed for slot in words[i].slots]
    there_TD = before_TD[moved_T]
    apart_T, length_T = (after_TD - there_TD).norm(dim=-1), there_TD.norm(dim=-1)
    changed = (apart_T / length_T).tolist()
    largest = float((after_TD - there_TD).abs().max())
    return Answer(
        data={
            "words": [{"text": word.text, "pieces": word.pieces, "slots": word.slots} for word in words],
            "kind": kind,
            "order": placed,
            "moved": moved_T,
            "changed": changed,
            "apart": apart_T.tolist(),
            "lengths": length_T.tolist(),
            "largest": largest,
            "largest_number": float(there_TD.abs().max()),
            "same": largest < 1e-12,
            "width": before_TD.shape[1],
            "shown": min(SHOWN, before_TD.shape[1]),
            "layers": len(_encoder(kind).layers),
        },
        arrays={"before": before_TD[:, :SHOWN], "after": after_TD[:, :SHOWN]},
        python=_SHUFFLED.format(
            imports=_IMPORTS[kind],
            model=_MODELS[kind],
            mask=", mask=Causal()" if kind == "causal" else "",
            ids=[token for word in words for token in word.ids],
            order=moved_T,
        ),
        printed=(*changed, largest),
    )


class Word(NamedTuple):
    """A word of the text: its tokens, and where they stand."""

    text: str
    ids: list[int]
    pieces: list[str]
    slots: list[int]


def _words(text: str) -> list[Word]:
    """Each with the space before it, as it has within a text."""
    tokenizer, found, n = _encoder("rotary").tokenizer, [], 0
    for word in text.split():
        ids = tokenizer.encode(f" {word}", bos=False)
        if not ids:  # signs that are no letters to the tokenizer
            continue
        pieces = [piece.removeprefix("·") or "·" for piece in tokenizer.pieces(ids)]
        found.append(Word(word, ids, pieces, list(range(n, n + len(ids)))))
        n += len(ids)
    if not found:
        raise UsageError("there is no word to shuffle; write two or three")
    if n > MOST_TOKENS:
        raise UsageError(f"these words are {n} tokens, and {MOST_TOKENS} fit here; take some away")
    return found


@lru_cache(maxsize=500)
def _read(kind: Kind, ids: tuple[int, ...]) -> Tensor:
    """What comes out of the last block for these tokens, (T, D)."""
    with torch.no_grad():
        stream_1TD: Tensor = _encoder(kind)(
            torch.tensor([ids]), read=False, mask=Causal() if kind == "causal" else None
        )
    return stream_1TD[0]


_BARE = "from clearhead.claims.positions.dog_bites_man import without_positions\n"
_IMPORTS: dict[Kind, str] = {"rotary": "", "none": _BARE, "causal": f"{_BARE}from clearhead.ops.masks import Causal\n"}
_MODELS: dict[Kind, str] = {
    "rotary": 'clearhead.load("clear-bert").double()',
    "none": 'without_positions(clearhead.load("clear-bert")).double()',
    "causal": 'without_positions(clearhead.load("clear-bert")).double()',
}
_SHUFFLED = """\
import torch

import clearhead
{imports}
model = {model}
tokens_T = torch.tensor({ids})
order_T = torch.tensor({order})
with torch.no_grad():
    before_TD = model(tokens_T[None], read=False{mask})[0][order_T]
    after_TD = model(tokens_T[order_T][None], read=False{mask})[0]
for change in (after_TD - before_TD).norm(dim=-1) / before_TD.norm(dim=-1):
    print(float(change))
print("largest difference of any number:", float((after_TD - before_TD).abs().max()))
"""


# ---- the table of waves


@operation("positions.table")
def table(
    *,
    d: Literal[16, 32, 64, 128] = 32,
    places: Annotated[int, Field(ge=16, le=256)] = 64,
    place: Annotated[int, Field(ge=0, le=255)] = 10,
    dimension: Annotated[int, Field(ge=0, le=127)] = 4,
) -> Answer:
    """The table of sinusoids, and one number of it taken apart. A place or dimension outside is brought to the edge."""
    place, dimension = min(place, places - 1), min(dimension, d - 1)
    table_ND = positions.sinusoids(torch.arange(places), d)
    frequency_K = positions.frequencies(d, BASE)
    length_K = 2 * math.pi / frequency_K.double()
    pair = dimension // 2
    value, angle = float(table_ND[place, dimension]), float(place * frequency_K[pair])
    return Answer(
        data={
            "d": d,
            "places": places,
            "place": place,
            "dimension": dimension,
            "pair": pair,
            "value": value,
            "angle": angle,
            "wave": "cosine" if dimension % 2 else "sine",
            "frequency": float(frequency_K[pair]),
            "wavelength": float(length_K[pair]),
            "shortest": float(length_K[0]),
            "longest": float(length_K[-1]),
            "wavelengths": length_K.tolist(),
        },
        arrays={"table": table_ND, "across": table_ND.t(), "row": table_ND[place], "wave": table_ND[:, dimension]},
        python=_TABLE.format(places=places, d=d, place=place, dimension=dimension),
        printed=(value, float(length_K[pair]), float(length_K[0]), float(length_K[-1])),
    )


_TABLE = """\
import math

import torch

from clearhead.ops import positions

table_ND = positions.sinusoids(torch.arange({places}), {d})
wavelengths = 2 * math.pi / positions.frequencies({d}, 10000.0).double()
print(float(table_ND[{place}, {dimension}]))
print(float(wavelengths[{dimension} // 2]))
print(float(wavelengths[0]), float(wavelengths[-1]))
"""


# ---- the curve that slides


@cache
def _measured(d: int) -> dict[str, Any]:
    """What is said of the curve at any place: by the functions of the claim distance-only."""
    similarity_PK = similarity(d, MEASURED)
    curve_K = similarity_PK.mean(0)
    rises = (curve_K.diff() > 0).nonzero().flatten()
    return {
        "spread": float((similarity_PK - curve_K).abs().max()),
        "turns": float(rises[0]),
        "order_kept": order_kept(curve_K),
        "near": float(curve_K[NEAR[0] : NEAR[1] + 1].mean()),
        "far": float(curve_K[FAR[0] : FAR[1] + 1].mean()),
        "near_curve": curve_K[NEAR[0] : NEAR[1] + 1].tolist(),
        "far_curve": curve_K[FAR[0] : FAR[1] + 1].tolist(),
        "at_turn": curve_K[int(rises[0]) : int(rises[0]) + 2].tolist(),
    }


@operation("positions.similarity")
def similar(
    *,
    d: Literal[64, 128, 512] = 128,
    place: Annotated[int, Field(ge=0, le=PLACES - 1)] = 60,
    other: Annotated[int, Field(ge=0, le=PLACES - 1)] = 70,
) -> Answer:
    """How alike the encoding of one place is to that of every other, 1 with itself."""
    table_ND = positions.sinusoids(torch.arange(PLACES), d).double()
    curve_N = table_ND @ table_ND[place] / (d / 2)
    found = _measured(d)
    value = float(curve_N[other])
    printed = (value, found["turns"], found["order_kept"], found["spread"], found["near"], found["far"])
    return Answer(
        data={
            "d": d,
            "place": place,
            "other": other,
            "places": PLACES,
            "distance": abs(place - other),
            "value": value,
            "measured": MEASURED,
            "farthest": FARTHEST,
            "pairs": FARTHEST * (FARTHEST + 1) // 2,
            "kept_pairs": round(found["order_kept"] * (FARTHEST * (FARTHEST + 1) // 2)),
            "dot": float(table_ND[other] @ table_ND[place]),
            "near_are": list(NEAR),
            "far_are": list(FAR),
            **found,
        },
        arrays={"curve": curve_N},
        python=_SIMILAR.format(
            places=PLACES,
            d=d,
            place=place,
            other=other,
            measured=MEASURED,
            near=f"{NEAR[0]} : {NEAR[1] + 1}",
            far=f"{FAR[0]} : {FAR[1] + 1}",
        ),
        printed=printed,
    )


_SIMILAR = """\
import torch

from clearhead.claims.positions.distance_only import order_kept, similarity
from clearhead.ops import positions

table_ND = positions.sinusoids(torch.arange({places}), {d}).double()
print("similarity:", float(table_ND[{place}] @ table_ND[{other}] / ({d} / 2)))
similarity_PK = similarity({d}, {measured})  # of every place with those up to so much farther on
curve_K = similarity_PK.mean(0)
print("turns up again at:", float((curve_K.diff() > 0).nonzero()[0]))
print("nearer is higher, share of pairs:", order_kept(curve_K))
print("spread over places:", float((similarity_PK - curve_K).abs().max()))
print("near and far:", float(curve_K[{near}].mean()), float(curve_K[{far}].mean()))
"""


# ---- the clock


@operation("positions.clock")
def clock(
    *,
    place: Annotated[int, Field(ge=0, le=1000)] = 10,
    step: Annotated[int, Field(ge=0, le=200)] = 3,
) -> Answer:
    """The encoding of a place as the hands of clocks, and of the place `step` farther on; and whether one matrix, made
    of `step` alone, takes the first to the second.
    """
    table_2D = positions.sinusoids(torch.tensor([place, place + step]), CLOCK_WIDTH).double()
    turned_D = table_2D[0] @ rotation(step)
    off = float((turned_D - table_2D[1]).abs().max())
    frequency_K = positions.frequencies(CLOCK_WIDTH, BASE).double()
    hands_2K2 = table_2D.unflatten(1, (-1, 2))
    turn_K = step * frequency_K
    return Answer(
        data={
            "place": place,
            "step": step,
            "width": CLOCK_WIDTH,
            "off": off,
            "turns": turn_K.tolist(),
            "frequencies": frequency_K.tolist(),
            "degrees": (turn_K * 180 / math.pi).tolist(),
            "wavelengths": (2 * math.pi / frequency_K).tolist(),
            "fastest": float(turn_K[0] * 180 / math.pi),
            "slowest": float(turn_K[-1] * 180 / math.pi),
        },
        arrays={"hands": hands_2K2[0], "moved": hands_2K2[1], "turned": turned_D.unflatten(0, (-1, 2))},
        python=_CLOCK.format(place=place, step=step, d=CLOCK_WIDTH),
        printed=(off, float(turn_K[0] * 180 / math.pi), float(turn_K[-1] * 180 / math.pi)),
    )


_CLOCK = """\
import math

import torch

from clearhead.claims.positions.linear_shift import rotation
from clearhead.ops import positions

here_D, there_D = positions.sinusoids(torch.tensor([{place}, {place} + {step}]), {d}).double()
print("what the rotation leaves over:", float((here_D @ rotation({step}) - there_D).abs().max()))
degrees = {step} * positions.frequencies({d}, 10000.0).double() * 180 / math.pi
print("turns of the fastest and the slowest hand:", float(degrees[0]), float(degrees[-1]))
"""
