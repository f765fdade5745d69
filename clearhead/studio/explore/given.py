"""What a person gives a model to read, and what the model then reads: token ids, a picture, a sound."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from clearhead.config import FramesConfig, PatchesConfig
from clearhead.errors import ClearheadError, UsageError
from clearhead.generation.source import beginning
from clearhead.lens.places import SOURCE
from clearhead.lens.views.labels import visible
from clearhead.model.stack import Stack
from clearhead.nn.patches import patch_grid

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.explore.uploads import Uploads

MAX_CHARACTERS = 100_000
MAX_TOKENS = 4096
MAX_WRITTEN = 64
"""How many tokens a model writes where it is given a source alone."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a model is given. Which of them it wants depends on what it reads."""

    text: str | None = None
    ids: tuple[int, ...] | None = None
    """Token ids in place of a text."""
    source: str | None = None
    """For the encoder beside a decoder. The text may then be left out: the model writes it."""
    picture: str | None = None
    """The name of a sample, or what an upload was answered with."""
    sound: str | None = None

    def __post_init__(self) -> None:
        for name in ("text", "source"):
            value = getattr(self, name)
            if value is not None and len(value) > MAX_CHARACTERS:
                raise UsageError(f"the {name} has {len(value):,} characters, and at most {MAX_CHARACTERS:,} are read")


@dataclass(frozen=True)
class Token:
    """One slot of what a stack reads."""

    id: int
    """-1 where it is no token of a vocabulary: a patch of a picture, a moment of a sound."""
    text: str
    """Safe to draw: a space as a dot, a control character as an escape."""
    start: int = -1
    """Where it begins and ends in the text, in characters; -1 where that is not known."""
    end: int = -1


@dataclass(frozen=True)
class Read:
    """What one stack reads."""

    stack: str
    """The stack's path: "" for the model itself, "encoder" for the one beside a decoder."""
    kind: str
    """"text", "picture" or "sound"."""
    tokens: tuple[Token, ...]
    grid: tuple[int, int] | None = None
    """Patches down and across, of a picture."""
    n_prefix: int = 0
    """Learned tokens before the first patch."""


@dataclass(frozen=True)
class Reading:
    """All that a model reads in one run."""

    given: Given
    """With the text that the model wrote, where it was given a source alone."""
    inputs: Mapping[str, Tensor]
    """What `model(...)` takes, with "tokens" among it: one row."""
    reads: tuple[Read, ...]
    """By stack, the one that gives the output first."""
    has_marks: bool = False
    """Whether the text names a special token: `clearhead.look` would take it for text, and needs the ids."""


def stacks_of(model: nn.Module) -> dict[str, Stack]:
    """Every stack of a model by its path, the one that gives the output first."""
    return {path: module for path, module in model.named_modules() if isinstance(module, Stack)}


def wants(model: Transformer) -> dict[str, str]:
    """What each stack of a model reads: "text", "picture" or "sound"."""
    kinds = {PatchesConfig: "picture", FramesConfig: "sound"}
    return {path: kinds.get(type(stack.embed.config.front), "text") for path, stack in stacks_of(model).items()}


def read(model: Transformer, given: Given, uploads: Uploads) -> Reading:
    """Make what was given into what the model takes.

    Raises:
        UsageError: something that the model reads is missing, or is longer than the Studio runs.
        ClearheadError: a text that can't be tokenized, a picture or sound that can't be read.
    """
    inputs: dict[str, Tensor] = {}
    reads: list[Read] = []
    kinds = wants(model)
    main = next(iter(kinds))
    # The source first: a text that is left out is written from it.
    for path in sorted(kinds, key=lambda path: path != SOURCE):
        if kinds[path] == "picture":
            inputs["pixels"], one = _picture(model, path, given, uploads)
        elif kinds[path] == "sound":
            inputs["frames"], one = _sound(model, path, given, uploads)
        elif path == SOURCE:
            inputs["source"], one = _text(model, path, given.source, None)
        else:
            given = _written(model, given, inputs) if SOURCE in kinds else given
            inputs["tokens"], one = _text(model, path, given.text, given.ids)
        reads.append(one)
    reads.sort(key=lambda one: one.stack != main)
    marks = False
    if given.text and given.ids is None and model.tokenizer is not None and hides_words(model):
        marks = inputs["tokens"][0].tolist() != model.tokenizer.encode(given.text)
    return Reading(given, inputs, tuple(reads), marks)


def drawn(model: Transformer, ids: list[int]) -> list[str]:
    """Each token as it is drawn."""
    if model.tokenizer is None:
        return [str(i) for i in ids]
    return [visible(piece) for piece in model.tokenizer.pieces(ids)]


def _text(model: Transformer, path: str, text: str | None, ids: tuple[int, ...] | None) -> tuple[Tensor, Read]:
    what = "source" if path == SOURCE else "text"
    if ids is None:
        if not text:
            raise UsageError(f"the {what} is empty; write at least one word")
        if model.tokenizer is None:
            raise UsageError("this model came without a tokenizer; give token ids")
        ids = tuple(model.tokenizer.encode(text, parse_special=hides_words(model)))
    if not ids:
        raise UsageError(f"the {what} has no tokens; write at least one word")
    if len(ids) > MAX_TOKENS:
        raise UsageError(f"the {what} is {len(ids):,} tokens, and the Studio runs at most {MAX_TOKENS:,}; shorten it")
    places = _places(model, text, ids)
    tokens = (Token(i, name, *place) for i, name, place in zip(ids, drawn(model, list(ids)), places, strict=True))
    return torch.tensor([ids]), Read(path, "text", tuple(tokens))


def hides_words(model: Transformer) -> bool:
    """Whether a model fills in hidden words, so that its mask is a token where a text names it."""
    names = {} if model.tokenizer is None else model.tokenizer.vocabulary.names
    return model.config.decoder is None and "mask_token" in names


def _places(model: Transformer, text: str | None, ids: tuple[int, ...]) -> list[tuple[int, int]]:
    """Where each token stands in the text."""
    if text is not None and model.tokenizer is not None:
        for marks in (True, False):
            encoded = model.tokenizer.core.encode(text, add_special_tokens=marks)
            if tuple(encoded.ids) == ids:
                special = model.tokenizer.special
                return [
                    (-1, -1) if i in special and a == b else (a, b)
                    for i, (a, b) in zip(ids, encoded.offsets, strict=True)
                ]
    return [(-1, -1)] * len(ids)


def _written(model: Transformer, given: Given, inputs: Mapping[str, Tensor]) -> Given:
    """With the decoder's text: what it begins with and the text given, or what the model itself writes."""
    if given.ids is not None:
        return given
    if model.tokenizer is None:
        raise UsageError("this model came without a tokenizer; give token ids")
    begin = beginning(model, {}, None)
    if given.text:
        return replace(given, ids=(*begin, *model.tokenizer.encode(given.text, bos=False)))
    from clearhead.generation import generate

    prompt: Any = inputs["frames"] if "frames" in inputs else inputs["source"]
    if "pixels" in inputs:
        raise UsageError("this model is to be given a text to read beside the picture; write one")
    result = generate(model, prompt, max_new_tokens=MAX_WRITTEN, temperature=0)[0]
    ids = [i for i in result.tokens if not model.tokenizer.is_special(i)]
    return replace(given, text=result.text, ids=(*begin, *ids))


def _picture(model: Transformer, path: str, given: Given, uploads: Uploads) -> tuple[Tensor, Read]:
    if given.picture is None:
        raise UsageError("this model reads a picture; choose a sample or give one of your own")
    from clearhead.inputs.images import ImageProcessor

    processor = ImageProcessor.from_folder(origin_of(model, "pictures"))
    pixels = processor(uploads.picture(given.picture)).to(model.device)
    front = stacks_of(model)[path].embed.config.front
    assert isinstance(front, PatchesConfig)
    down, across = patch_grid(front, *pixels.shape[-2:])
    if front.n_prefix + down * across > MAX_TOKENS:
        raise UsageError(f"the picture has {down * across:,} patches, and the Studio runs at most {MAX_TOKENS:,}")
    prefix = [Token(-1, "class" if i == 0 else f"learned {i}") for i in range(front.n_prefix)]
    patches = [Token(-1, f"row {y + 1}, column {x + 1}") for y in range(down) for x in range(across)]
    return pixels, Read(path, "picture", (*prefix, *patches), (down, across), front.n_prefix)


def _sound(model: Transformer, path: str, given: Given, uploads: Uploads) -> tuple[Tensor, Read]:
    if given.sound is None:
        raise UsageError("this model hears a sound; choose a sample or give one of your own")
    from clearhead.inputs.audio import AudioProcessor

    processor = AudioProcessor.from_folder(origin_of(model, "sounds"))
    samples, rate = uploads.sound(given.sound, processor.rate)
    frames = processor([samples], rate, cut=True).to(model.device)
    front = stacks_of(model)[path].embed.config.front
    assert isinstance(front, FramesConfig)
    n = -(-frames.shape[-1] // _stride(front))
    seconds = processor.seconds / n
    return frames, Read(path, "sound", tuple(Token(-1, f"{slot * seconds:.2f} s") for slot in range(n)))


def _stride(front: FramesConfig) -> int:
    product = 1
    for stride in front.strides:
        product *= stride
    return product


def origin_of(model: Transformer, what: str) -> str:
    """The folder that says how a model's pictures or sounds are prepared."""
    if model.origin is None:
        raise ClearheadError(f"this model was not loaded from a folder, which would say how {what} are prepared")
    return str(model.origin.where)


LAYER = re.compile(r"(?P<before>.*?layers\.)(?P<layer>\d+)(?P<after>\..+)")
"""An address within a layer, taken apart."""
