"""The claim of ten words holds, and not without the divisor or with the cat's key gone."""

from __future__ import annotations

import pytest

from clearhead.claims.scaled import ten_words
from clearhead.claims.verdict import FAILS, HOLDS
from tests.claims.quick import measured, verdict


def test_it_holds() -> None:
    assert verdict("ten-words") == HOLDS
    values = measured("ten-words").values
    assert values["divisor"] == 2
    assert values["weight of cat for it"] == pytest.approx(0.5107, abs=1e-3)


@pytest.mark.parametrize("row", range(10))
def test_every_word_reads_most_what_its_query_asks_for(row: int) -> None:
    """An article reads nouns, a noun and a conjunction the verb, verbs and an adjective the cat, "on" the mat."""
    weights = measured("ten-words").series["weights"][row]
    best = {i for i, weight in enumerate(weights) if weight > max(weights) - 1e-12}
    words = {ten_words.SENTENCE[i] for i in best}
    cat, verb, both = {"cat"}, {"sat"}, {"cat", "mat"}
    assert words == [both, verb, cat, {"mat"}, both, verb, verb, cat, cat, cat][row]


def test_without_the_divisor_it_fails(monkeypatch) -> None:
    monkeypatch.setattr(ten_words, "scale_of", lambda d_head: 1.0)
    assert verdict("ten-words") == FAILS


def test_where_the_cat_is_not_animate_it_fails(monkeypatch) -> None:
    keys = list(ten_words.KEYS)
    keys[ten_words.CAT] = (1.0, 0.0, 0.0, 0.0)
    monkeypatch.setattr(ten_words, "KEYS", tuple(keys))
    assert verdict("ten-words") == FAILS
