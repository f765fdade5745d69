"""A made-up language to translate from, and which word every word comes from."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.config import TokenIds

IDS = TokenIds(pad=0, bos=1, eos=(2,), decoder_start=1)
FIRST = 3
"""The first number that is a word."""
NO_TARGET = -100


@dataclass(frozen=True)
class Language:
    """Nouns, perhaps with an adjective before them, and verbs between them: "old dog sees cat likes red house". In
    translation the adjective stands behind its noun, and a verb becomes two words. Every word of a sentence is drawn
    by itself, so that none can be guessed from the others.
    """

    n_nouns: int = 20
    n_adjectives: int = 10
    n_verbs: int = 10

    @property
    def source_words(self) -> int:
        return FIRST + self.n_nouns + self.n_adjectives + self.n_verbs

    @property
    def target_words(self) -> int:
        return self.source_words + self.n_verbs

    def sentence(self, n_words: int, draw: random.Random) -> list[tuple[str, int]]:
        """Kinds and words; a noun first and last."""
        words: list[tuple[str, int]] = []
        while len(words) < n_words:
            left = n_words - len(words)
            # A noun phrase of two words where one of one would leave a verb at the end.
            if left == 2 or (left > 3 and draw.random() < 0.5):
                words.append(("adjective", draw.randrange(self.n_adjectives)))
            words.append(("noun", draw.randrange(self.n_nouns)))
            if len(words) < n_words:
                words.append(("verb", draw.randrange(self.n_verbs)))
        return words

    def translated(self, words: list[tuple[str, int]]) -> Iterator[tuple[int, int]]:
        """Every word of the translation, and the place in the source that it comes from."""
        nouns, adjectives = FIRST, FIRST + self.n_nouns
        verbs = adjectives + self.n_adjectives
        for i, (kind, word) in enumerate(words):
            if kind == "noun":
                yield nouns + word, i
                if i > 0 and words[i - 1][0] == "adjective":
                    yield adjectives + words[i - 1][1], i - 1
            elif kind == "verb":
                yield verbs + word, i
                yield verbs + self.n_verbs + word, i

    def names(self) -> list[str]:
        """What every number of either language is called: n, a and v with a number, and v' for a verb's second word."""
        kinds = (("n", self.n_nouns), ("a", self.n_adjectives), ("v", self.n_verbs), ("v'", self.n_verbs))
        words = [f"{kind[0]}{i}{kind[1:]}" for kind, n in kinds for i in range(n)]
        return ["", "start", "end", *words]

    def number(self, kind: str, word: int) -> int:
        """A word of the source as a token."""
        first = {"noun": FIRST, "adjective": FIRST + self.n_nouns, "verb": FIRST + self.n_nouns + self.n_adjectives}
        return first[kind] + word

    def batch(self, n_words: int, rows: int, draw: random.Random) -> Pairs:
        """Sentences of one length with their translations, which end with the end of text."""
        sentences = [self.sentence(n_words, draw) for _ in range(rows)]
        targets = [list(self.translated(words)) for words in sentences]
        longest = max(map(len, targets)) + 1
        read_BT = torch.full((rows, longest), IDS.pad or 0)
        read_BT[:, 0] = IDS.decoder_start or 0
        write_BT, from_BT = torch.full((rows, longest), NO_TARGET), torch.full((rows, longest), NO_TARGET)
        for row, target in enumerate(targets):
            numbers, places = (torch.tensor(x) for x in zip(*target, strict=True))
            n = len(target)
            read_BT[row, 1 : n + 1] = write_BT[row, :n] = numbers
            write_BT[row, n], from_BT[row, :n] = IDS.eos[0], places
        source_BS = torch.tensor([[self.number(*word) for word in words] for words in sentences])
        new_BT = (from_BT != NO_TARGET) & (write_BT < self.source_words)
        return Pairs(source_BS, read_BT, write_BT, from_BT, new_BT)


@dataclass(frozen=True)
class Pairs:
    """Sentences of one length, and their translations."""

    source_BS: Tensor
    read_BT: Tensor
    """The translations behind a token that begins them: what a decoder reads."""
    write_BT: Tensor
    """What it is to write at each place; `NO_TARGET` behind the end."""
    from_BT: Tensor
    """Which word of the source each word comes from; `NO_TARGET` at the end and behind it."""
    new_BT: Tensor
    """Which words can be known from the source alone: not a verb's second word, which follows from its first, and not
    the end."""
