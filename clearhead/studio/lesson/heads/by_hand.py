"""One layer of attention with four heads whose matrices are set by hand, so that each does one thing on ten words.

Each word's vector has 25 named numbers: which word it is (9, for "The" and "the" are one word), where it stands (two
waves, as cosine and sine), what it is (noun, animate, action, object), and eight that are empty until heads write.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

import torch
from torch import Tensor

from clearhead.claims.ingredients.small_models import attention, decoder, new_model
from clearhead.claims.scaled.ten_words import DIMENSIONS, KEYS, SENTENCE, VALUES
from clearhead.config import BlockConfig, MaskConfig, SublayerConfig
from clearhead.lens import look
from clearhead.lens.seen import Seen
from clearhead.model.transformer import Transformer
from clearhead.studio.lesson.drawing import DRAWING

WORDS = tuple(dict.fromkeys(word.lower() for word in SENTENCE))
TURNS = (2 * math.pi / 20, 2 * math.pi * 3 / 20)
"""How far each wave turns from one word to the next: no two of ten places look alike."""
WAVES = ("slow cos", "slow sin", "fast cos", "fast sin")
BEFORE = tuple(f"before: {name}" for name in DIMENSIONS)
TWIN = tuple(f"twin: {wave}" for wave in WAVES)
NAMES = (*WORDS, *WAVES, *DIMENSIONS, *BEFORE, *TWIN)
"""What each number of the stream means."""
PLACE, MEANING, ROOM, ROOM_TWIN = (
    len(WORDS),
    len(WORDS) + 4,
    len(WORDS) + 8,
    len(WORDS) + 12,
)
WIDTH, D_HEAD = len(NAMES), 4
NEAR = 16.0
"""How sharply the first head looks at one place: about a twentieth of its attention falls beside it."""
SPELLING = {word: [1.0 if i >> bit & 1 else -1.0 for bit in range(4)] for i, word in enumerate(WORDS)}


@dataclass(frozen=True)
class Role:
    """A head: what it does, and what its four numbers of query and key mean."""

    name: str
    does: str
    dimensions: tuple[str, str, str, str]


ROLES = (
    Role("previous token", "each word looks at the word before it", ("slow cos", "slow sin", "fast cos", "fast sin")),
    Role("pronoun to noun", "a pronoun looks for an animate noun", ("noun", "animate", "action", "object")),
    Role("verb to subject", "a verb looks for who or what it is about", ("acts", "is told of", "-", "-")),
    Role(
        "same word",
        "each word looks for itself and its twins",
        ("spelling 1", "spelling 2", "spelling 3", "spelling 4"),
    ),
)


@dataclass(frozen=True)
class Weights:
    """A head's own matrices, with a row for each of its four numbers, (4, 25), and what it writes, (25, 4)."""

    q_KD: Tensor
    k_KD: Tensor
    v_KD: Tensor
    o_DK: Tensor


def stream() -> Tensor:
    """The ten words' vectors, (10, 25)."""
    x_TD = torch.zeros(len(SENTENCE), WIDTH, dtype=torch.float64)
    for place, (word, value) in enumerate(zip(SENTENCE, VALUES, strict=True)):
        x_TD[place, WORDS.index(word.lower())] = 1
        waves = [wave(turn * place) for turn in TURNS for wave in (math.cos, math.sin)]
        x_TD[place, PLACE : PLACE + 4] = torch.tensor(waves, dtype=torch.float64)
        x_TD[place, MEANING : MEANING + 4] = torch.tensor(value, dtype=torch.float64)
    return x_TD


def _empty() -> Weights:
    q_KD, k_KD, v_KD = (torch.zeros(D_HEAD, WIDTH, dtype=torch.float64) for _ in range(3))
    return Weights(q_KD, k_KD, v_KD, torch.zeros(WIDTH, D_HEAD, dtype=torch.float64))


def _copies(weights: Weights, start: int, to: int, times: float = 1.0) -> None:
    """Read four numbers of the stream as the values, and write them elsewhere."""
    weights.v_KD[:, start : start + 4] = torch.eye(4)
    weights.o_DK[to : to + 4] = times * torch.eye(4)


def previous_token() -> Weights:
    """The query is the place before one's own: each wave, turned back by a step."""
    head = _empty()
    for i, turn in enumerate(TURNS):
        at = slice(PLACE + 2 * i, PLACE + 2 * i + 2)
        back = torch.tensor([[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]])
        head.q_KD[2 * i : 2 * i + 2, at] = NEAR * back
        head.k_KD[2 * i : 2 * i + 2, at] = torch.eye(2)
    _copies(head, MEANING, ROOM)
    return head


def pronoun_to_noun() -> Weights:
    """Chapter 3's query of "it" and its keys, twice as sharp."""
    head = _empty()
    head.q_KD[:, WORDS.index("it")] = 2 * torch.tensor([1.0, 2.0, 0.0, 0.0])
    for word, key in zip(SENTENCE, KEYS, strict=True):
        head.k_KD[:, WORDS.index(word.lower())] = torch.tensor(key)
    _copies(head, MEANING, MEANING)
    return head


def verb_to_subject() -> Weights:
    """A verb of action asks who acts, and "was" asks what is told of."""
    head = _empty()
    head.q_KD[:, WORDS.index("sat")] = torch.tensor([4.0, 0.0, 0.0, 0.0])
    head.q_KD[:, WORDS.index("was")] = torch.tensor([0.0, 4.0, 0.0, 0.0])
    for word, key in (("cat", (2.0, 1.0)), ("mat", (0.0, 0.5)), ("it", (0.5, 2.0))):
        head.k_KD[:2, WORDS.index(word)] = torch.tensor(key)
    _copies(head, MEANING, MEANING, 0.5)
    return head


def same_word() -> Weights:
    """Every word has a code of four signs, and asks for its own; what it reads is where its twins stand."""
    head = _empty()
    for word, signs in SPELLING.items():
        head.q_KD[:, WORDS.index(word)] = 2 * torch.tensor(signs)
        head.k_KD[:, WORDS.index(word)] = torch.tensor(signs)
    _copies(head, PLACE, ROOM_TWIN)
    return head


@cache
def heads() -> tuple[Weights, ...]:
    """In the order of `ROLES`."""
    return previous_token(), pronoun_to_noun(), verb_to_subject(), same_word()


@cache
def model(causal: bool = False) -> Transformer:
    """The library's own attention with these weights, alone in a model that reads places 0 to 9 as the ten words."""
    config = replace(
        attention(len(ROLES), D_HEAD), positions=None, mask=MaskConfig(kind="causal" if causal else "full")
    )
    block = BlockConfig(mixer=SublayerConfig(op=config), ffn=None)
    with DRAWING:
        made = new_model(decoder((block,), d_model=WIDTH, vocab_size=len(SENTENCE), norm=None), 0).double()
    weights = {
        "embed.tokens.weight": stream(),
        "layers.0.mixer.q_proj.weight": torch.cat([head.q_KD for head in heads()]),
        "layers.0.mixer.k_proj.weight": torch.cat([head.k_KD for head in heads()]),
        "layers.0.mixer.v_proj.weight": torch.cat([head.v_KD for head in heads()]),
        "layers.0.mixer.o_proj.weight": torch.cat([head.o_DK for head in heads()], dim=1),
    }
    with torch.no_grad():
        for name, value in weights.items():
            made.get_parameter(name).copy_(value)
    return made.eval()


@cache
def seen(causal: bool = False) -> Seen:
    """All that happens inside, on the ten words."""
    return look(model(causal), list(range(len(SENTENCE))), "embed", "layers.0.mixer.*", "layers.0.resid_post")
