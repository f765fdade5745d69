"""Word errors, counted by hand."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from clearhead.errors import ClearheadError
from clearhead.training.measures.transcripts import TranscriptScores


@pytest.mark.parametrize(
    ("said", "written", "errors"),
    [
        ("one two three four", "one two three four", 0),
        ("one two three four", "one two tree four", 1),  # changed
        ("one two three four", "one three four", 1),  # left out
        ("one two three four", "one two two three four", 1),  # put in
        ("one two three four", "two three four five", 2),  # moved: one out, one in
        ("one two three four", "", 4),
        ("one", "two one three four", 3),  # more errors than words
        ("the cat sat on the mat", "the cat sit on mat", 2),
        ("kitten", "sitting", 1),  # words, not letters
    ],
)
def test_word_errors(said: str, written: str, errors: int) -> None:
    assert TranscriptScores((said,), (written,)).word_error_rate == pytest.approx(errors / len(said.split()))


def test_the_rate_is_of_all_words_and_not_the_mean_of_rates() -> None:
    scores = TranscriptScores(("one", "one two three", "four five"), ("two", "one two three", "four"))
    assert scores.word_error_rate == pytest.approx(2 / 6)
    assert scores.exact == pytest.approx(1 / 3)
    assert scores.summary() == {"sounds": 3, "word_error_rate": scores.word_error_rate, "exact": scores.exact}
    assert scores.of([1, 2]).word_error_rate == pytest.approx(1 / 5)
    assert scores.of([0]) == TranscriptScores(("one",), ("two",))


def test_the_package_that_counts_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str, *rest: Any) -> None:
        return None

    monkeypatch.setattr("importlib.util.find_spec", nothing)
    monkeypatch.delitem(sys.modules, "jiwer", raising=False)
    with pytest.raises(ClearheadError, match=r'jiwer.*pip install "clearhead\[train\]"'):
        _ = TranscriptScores(("one",), ("one",)).word_error_rate
