"""The made-up language: its rules, and that every word is told by its source alone."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
import torch

from clearhead.claims.ingredients.languages import IDS, NO_TARGET, Language

WORDS = Language(n_nouns=5, n_adjectives=3, n_verbs=4)


@pytest.mark.parametrize("n_words", range(1, 25))
def test_sentences_are_as_long_as_asked_and_well_made(n_words: int) -> None:
    draw = random.Random(0)
    for _ in range(50):
        kinds = [kind for kind, _ in WORDS.sentence(n_words, draw)]
        assert len(kinds) == n_words and kinds[-1] == "noun"
        for kind, following in pairwise(kinds):
            allowed = {"adjective": {"noun"}, "noun": {"verb"}, "verb": {"noun", "adjective"}}
            assert following in allowed[kind]


def test_a_translation_by_hand() -> None:
    """Adjective 2, noun 4, verb 1, noun 0: noun, adjective, both words of the verb, noun."""
    words = [("adjective", 2), ("noun", 4), ("verb", 1), ("noun", 0)]
    names = WORDS.names()
    said = [(names[number], place) for number, place in WORDS.translated(words)]
    assert said == [("n4", 1), ("a2", 0), ("v1", 2), ("v1'", 2), ("n0", 3)]
    assert [names[WORDS.number(*word)] for word in words] == ["a2", "n4", "v1", "n0"]
    assert len(names) == WORDS.target_words


def test_a_batch() -> None:
    pairs = WORDS.batch(6, 40, random.Random(1))
    again = WORDS.batch(6, 40, random.Random(1))
    assert torch.equal(pairs.source_BS, again.source_BS)
    assert pairs.source_BS.shape == (40, 6) and pairs.source_BS.max() < WORDS.source_words
    n_B = (pairs.write_BT != NO_TARGET).sum(dim=1)
    for row, n in enumerate(n_B.tolist()):
        assert pairs.read_BT[row, 0] == IDS.decoder_start
        assert torch.equal(pairs.read_BT[row, 1:n], pairs.write_BT[row, : n - 1])
        assert int(pairs.write_BT[row, n - 1]) in IDS.eos
        # Every word of the source is translated, and a verb twice.
        assert sorted(set(pairs.from_BT[row, : n - 1].tolist())) == list(range(6))
        twice = pairs.from_BT[row, : n - 1].unique(return_counts=True)[1] == 2
        assert int(pairs.new_BT[row].sum()) == 6 == n - 1 - int(twice.sum())
