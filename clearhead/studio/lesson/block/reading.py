"""A model's pass over a reader's text, kept for the next question about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from torch import Tensor

from clearhead.config import TransformerConfig
from clearhead.errors import UsageError
from clearhead.lens import Seen, look
from clearhead.lens.stream import AFTER, Addition, additions
from clearhead.model.transformer import Transformer
from clearhead.studio.context import Studio
from clearhead.studio.kept import KeptResults
from clearhead.studio.lesson.block.parts import Plan, plan
from clearhead.taps import catalogue

MOST_TOKENS = 48
TEXT = "The people of the United"

ModelId = Annotated[str, Field(min_length=1, max_length=100)]
Text = Annotated[str, Field(max_length=600)]


@dataclass(frozen=True)
class Reading:
    """What a model computed of one text; it holds nothing of the model, so it may be kept when that is dropped."""

    ids: list[int]
    pieces: list[str]
    cut: bool
    """Whether the text was longer."""
    seen: Seen
    plan: Plan


@dataclass(frozen=True)
class Pass(Reading):
    """A reading, and the model whose it is."""

    model: Transformer
    source: str
    """What `clearhead.load` takes for it, as code."""
    additions: list[Addition]


_readings: KeptResults[Reading] = KeptResults(6)


def passed(studio: Studio, id: str, text: str) -> Pass:
    """The pass of a model over the first tokens of a text, which is kept for the next question about it.

    Raises:
        ClearheadError: the model reads no text, or cannot be loaded; or there is no text.
    """
    reading = _readings.of(studio.models, id, text, make=lambda model: _read(model, id, text))
    model = studio.models.get(id)
    return Pass(**vars(reading), model=model, source=repr(studio.models.source(id)), additions=additions(model))


def _read(model: Transformer, id: str, text: str) -> Reading:
    if not _reads_text(model):
        raise UsageError(f"{id} is not one stack that reads text; take a decoder or an encoder of text")
    if not text.strip():
        raise UsageError("there is no text to read; write a few words")
    ids = model.tokenizer.encode(text)
    cut = len(ids) > MOST_TOKENS
    ids = ids[:MOST_TOKENS]
    seen = look(model, ids, *_wanted(model))
    return Reading(ids, seen.tokens[0], cut, seen, plan(model, len(ids)))


def _reads_text(model: Transformer) -> bool:
    config = model.config
    one = isinstance(config, TransformerConfig) and (config.encoder is None or config.decoder is None)
    return one and model.takes_tokens and model.tokenizer is not None


def _wanted(model: Transformer) -> list[str]:
    """The stream, all that is added to it, and what is inside the parts."""
    names = ("resid_pre", "resid_mid", "resid_post", "pattern", "z", "pre", "post", "out")
    return [
        address
        for address in catalogue(model)
        if address in ("embed", "final") or (address.startswith("layers.") and address.rpartition(".")[2] in names)
    ]


def slot_of(found: Pass, token: int) -> int:
    """A token of the text; negative ones from the end, and what is beyond it is brought to the edge."""
    n = len(found.ids)
    return max(0, n + token) if token < 0 else min(token, n - 1)


def after(found: Pass, addition: Addition) -> Tensor:
    """The stream that an addition leaves, (T, D)."""
    return found.seen[after_name(addition)][0]


def after_name(addition: Addition) -> str:
    return f"layers.{addition.layer}.{AFTER[addition.kind]}"
