"""Chapter 8: what the costs of a model mean for those who use it, and where in a long text a fact is found."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import Field

from clearhead.claims.ingredients.shares import wilson
from clearhead.claims.scale.lost_in_the_middle import by_place
from clearhead.costs.cost import Cost
from clearhead.costs.devices import devices
from clearhead.costs.serving import made_for
from clearhead.errors import UsageError
from clearhead.studio.cost import plain_bound
from clearhead.studio.operations import Answer, operation
from clearhead.studio.presets import costed, counted, groupings, source_code, writers

if TYPE_CHECKING:
    from clearhead.studio.context import Studio

RETRIEVER = "clear-2l"
FIRST_ID = 100
"""Of the pairs, as in the claim: its first tokens are marks and rare bytes."""


@operation("scale.service")
def service(
    *,
    preset: Annotated[str, Field(min_length=1, max_length=60)] = "llama3-70b",
    device: Annotated[str, Field(min_length=1, max_length=40)] = "h100-sxm",
    n_devices: Annotated[int, Field(ge=0, le=4096)] = 4,
    price: Annotated[float, Field(ge=0, le=1e6)] = 12.0,
    context: Annotated[int, Field(ge=1, le=2**20)] = 8192,
    kept: Annotated[int, Field(ge=0, le=2**20)] = 7168,
    kv_heads: Annotated[int, Field(ge=0, le=1024)] = 0,
) -> Answer:
    """Users, prices and the longest text of a model on rented devices, in bfloat16: bounds, which no machine beats.

    `n_devices` 0: as few as hold it; `kept`: tokens at the beginning of every prompt whose state is kept.
    """
    of = counted(preset, kv_heads)
    if preset not in writers():
        raise UsageError(f"{preset[:60]!r} does not write; those that do are {', '.join(writers())}")
    if device not in devices():
        raise UsageError(f"no device is called {device[:40]!r}; there are {', '.join(devices())}")
    end = made_for(of)
    context = context if end is None else min(context, end)
    kept = max(1, min(kept, context))
    asked = {
        "context": context,
        "device": device,
        "devices": n_devices or None,
        "price_per_hour": price,
        "kept": kept,
    }
    found = costed(preset, of, **asked)
    told = found.service
    assert told is not None
    room = told.users if told.users is not None else 64
    texts = [n for n in (2**i for i in range(13)) if n <= max(room, 1)]
    texts = sorted({*texts, max(room, 1)})
    alone, together = told.writing(1), told.writing(max(room, 1))
    longest = found.longest
    numbers = list(_numbers(found, longest, max(room, 1)))
    left = told.reading_rest.load.flops / told.reading.load.flops
    return Answer(
        data={
            "preset": preset,
            "price": price,
            "printed": {words: i for i, (words, _, _) in enumerate(numbers)},
            "names": list(writers()),
            "devices": [{"key": key, "name": one.name} for key, one in devices().items()],
            "device": told.device.name,
            "memory": told.device.memory,
            "fits": told.fits,
            "context": context,
            "kept": kept,
            "made_for": end,
            "groupings": groupings(counted(preset).config),
            "users": told.users,
            "longest": longest,
            "weights": found.weight_bytes,
            "room": told.device.memory - found.weight_bytes,
            "per_text": found.counts.state(1, context, 2).total,
            "reading": plain_bound(told.reading),
            "reading_rest": plain_bound(told.reading_rest),
            "saved_share": 1 - left,
            "machine": {
                "name": told.device.name,
                "bandwidth": told.device.bandwidth,
                "peak": told.device.peak("bfloat16"),
            },
            "per_token": found.counts.state(1, 1, 2).per_token,
            "alone": {
                "rate": alone.tokens_per_second,
                "price": told.price_out(1),
                "step": {**plain_bound(alone.bound), "seconds": alone.seconds},
            },
            "together": {
                "texts": max(room, 1),
                "rate": together.tokens_per_second,
                "each": together.tokens_per_second / max(room, 1),
                "price": told.price_out(max(room, 1)),
                "step": {**plain_bound(together.bound), "seconds": together.seconds},
            },
            "price_in": told.price_in(),
            "price_saved": told.price_saved(),
            "curve": {
                "texts": texts,
                "price": [told.price_out(n) for n in texts],
                "seconds": [told.writing(n).seconds for n in texts],
                "waits_for": [told.writing(n).bound.limit for n in texts],
            },
        },
        python=_code(preset, kv_heads, asked, [(words, code) for words, code, _ in numbers]),
        printed=tuple(value for _, _, value in numbers),
    )


def _numbers(found: Cost, longest: int | None, texts: int) -> Iterator[tuple[str, str, float]]:
    """What is printed: words, the code that gives it, and its value."""
    told = found.service
    assert told is not None
    if told.users is not None:
        yield "texts there is room for", "service.users", told.users
    if longest is not None:
        yield "tokens of the longest text", "cost.longest", longest
    yield "seconds to read a prompt", "service.reading.seconds", told.reading.seconds
    yield "dollars for a million tokens written for one", "service.price_out(1)", told.price_out(1)
    yield "dollars for a million tokens written for all", f"service.price_out({texts})", told.price_out(texts)
    yield "dollars saved by a kept prompt, each time", "service.price_saved()", told.price_saved()


def _code(preset: str, kv_heads: int, asked: dict[str, Any], numbers: list[tuple[str, str]]) -> str:
    before, what = source_code(preset, kv_heads)
    words = "".join(f", {name}={value!r}" for name, value in asked.items() if value is not None)
    lines = "\n".join(f'print("{said}:", {code})' for said, code in numbers)
    return f"import clearhead\n{before}\ncost = clearhead.cost({what}{words})\nservice = cost.service\n{lines}\n"


# ---- where a fact is found


@operation("scale.middle")
def middle(
    studio: Studio,
    *,
    pairs: Annotated[int, Field(ge=4, le=24)] = 16,
    seed: Annotated[int, Field(ge=0, le=99)] = 0,
) -> Iterator[Answer]:
    """How often clear-2l finds the value of a key in a list of pairs, by the place where the pair stands."""
    trials = 64
    model = studio.models.get(RETRIEVER)
    with studio.models.lock(RETRIEVER):
        found = _by_place(model, pairs, trials, seed)
    yield Answer(
        data={
            "pairs": pairs,
            "places": list(range(1, pairs + 1)),
            "found": found,
            "hits": [round(share * trials) for share in found],
            "low": [wilson(share * trials, trials)[1] for share in found],
            "high": [wilson(share * trials, trials)[2] for share in found],
            "trials": trials,
            "start": found[0],
            "middle": found[pairs // 2],
            "end": found[-1],
            "seed": seed,
            "vocabulary": model.config.vocab_size,
            "chance": 1 / model.config.vocab_size,
        },
        python=_MIDDLE.format(pairs=pairs, trials=trials, seed=seed, first=FIRST_ID),
        printed=tuple(found),
    )


@lru_cache(maxsize=32)
def _by_place(model: Any, pairs: int, trials: int, seed: int) -> list[float]:
    with torch.inference_mode():
        return by_place(model, pairs, trials, FIRST_ID, seed)


_MIDDLE = """\
import clearhead
from clearhead.claims.scale.lost_in_the_middle import by_place

model = clearhead.load("clear-2l")
for share in by_place(model, {pairs}, {trials}, {first}, {seed}):
    print(f"found: {{share:.9f}}")
"""
