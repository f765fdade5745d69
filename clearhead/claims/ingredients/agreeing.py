"""Sentences whose verb stands far from its subject: in English, and in a grammar for small models."""

from __future__ import annotations

import random
from dataclasses import dataclass

import torch
from torch import Tensor

SUBJECTS = ("key", "letter", "picture", "book", "lamp", "boat", "chair", "report", "painting", "bottle", "plant")
OTHERS = ("cabinet", "door", "table", "garden", "window", "house", "wall", "road", "tree", "school", "shop", "field")
BETWEEN = ("to", "near", "behind", "beside", "above", "by", "in front of", "next to")
VERBS = ((" is", " are"), (" was", " were"))


@dataclass(frozen=True)
class Sentence:
    """What comes before the verb, the verb that agrees with the subject, and the one that does not."""

    start: str
    right: str
    wrong: str


def pair(draw: random.Random, n_between: int) -> list[Sentence]:
    """ "The key to the cabinets ... is" and "The keys to the cabinet ... are", with so many nouns of the other number
    between subject and verb: a taste for one verb loses in one what it gains in the other.
    """
    subject, verbs = draw.choice(SUBJECTS), draw.choice(VERBS)
    between = [(draw.choice(BETWEEN), noun) for noun in draw.sample(OTHERS, n_between)]
    sentences = []
    for plural in (False, True):
        words = [f"The {subject}{'s' * plural}", *(f"{word} the {noun}{'s' * (not plural)}" for word, noun in between)]
        sentences.append(Sentence(" ".join(words), verbs[plural], verbs[not plural]))
    return sentences


# ---- the grammar: [preposition the noun ,] the noun {preposition the noun} verb [the noun] .
# What stands in square brackets is there or not; in curly ones, any number of times.

NOTHING, THE, COMMA, STOP = range(4)
N_PREPOSITIONS, N_NOUNS, N_VERBS = 4, 10, 5
PREPOSITIONS = 4
NOUNS = PREPOSITIONS + N_PREPOSITIONS
"""Singular nouns from here on, and their plurals after them."""
SINGULAR = NOUNS + 2 * N_NOUNS
PLURAL = SINGULAR + N_VERBS
N_WORDS = PLURAL + N_VERBS
SHARES = (0.45, 0.45, 0.05, 0.03, 0.02)
"""How many of the sentences to learn from have 0, 1, ... nouns between subject and verb, each of either number."""
LONGEST = 4 + 2 + 3 * 4 + 4


@dataclass(frozen=True)
class Sentences:
    """Sentences of the grammar."""

    words_BT: Tensor
    verb_B: Tensor
    """The slot of the verb."""
    plural_B: Tensor
    """Whether the subject, and so the verb, is plural."""


def written(n: int, draw: torch.Generator, n_between: int | None = None) -> Sentences:
    """Sentences to learn from; given `n_between`, sentences that have so many nouns between subject and verb, where all
    before the verb but the subject are of the other number.
    """
    words_BT = torch.full((n, LONGEST), NOTHING)
    verb_B, plural_B = torch.zeros(n, dtype=torch.long), torch.rand(n, generator=draw) < 0.5
    counts_B = torch.multinomial(torch.tensor(SHARES), n, replacement=True, generator=draw)
    for row in range(n):
        plural = bool(plural_B[row])
        words = [*_attached(draw, plural, n_between), COMMA] if _one_of(4, draw) == 0 else []
        words += _noun(draw, plural)
        for _ in range(int(counts_B[row]) if n_between is None else n_between):
            words += _attached(draw, plural, n_between)
        verb_B[row] = len(words)
        words.append((PLURAL if plural else SINGULAR) + _one_of(N_VERBS, draw))
        words += _noun(draw, _one_of(2, draw) == 0) if _one_of(2, draw) == 0 else []
        words.append(STOP)
        words_BT[row, : len(words)] = torch.tensor(words)
    return Sentences(words_BT, verb_B, plural_B)


def _attached(draw: torch.Generator, plural: bool, n_between: int | None) -> list[int]:
    """A preposition and its noun, beside a subject of that number."""
    other = _one_of(2, draw) == 0 if n_between is None else not plural
    return [PREPOSITIONS + _one_of(N_PREPOSITIONS, draw), *_noun(draw, other)]


def _noun(draw: torch.Generator, plural: bool) -> list[int]:
    return [THE, NOUNS + N_NOUNS * plural + _one_of(N_NOUNS, draw)]


def _one_of(n: int, draw: torch.Generator) -> int:
    return int(torch.randint(n, (), generator=draw))
