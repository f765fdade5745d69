"""Stop texts that span tokens (H17), stop tokens and budgets: the same in whole answers and in streams."""

from __future__ import annotations

from typing import Any

import pytest

from clearhead.errors import ClearheadError
from clearhead.generation import Result, generate, stream
from clearhead.generation.text import Text
from tests.generation.scripted import Scripted, saying


def both(model: Scripted, **options: Any) -> tuple[Result, list[str]]:
    """The whole answer, after a check that the stream gives the same."""
    result = generate(model, [0], **options)
    pieces = stream(model, [0], **options)
    texts = list(pieces)
    assert "".join(texts) == result.text
    assert pieces.result == result
    return result, [str(text) for text in texts]


def test_a_stop_that_spans_tokens() -> None:
    result, pieces = both(saying("ok ", "EN", "D-", "OF tail"), stop="END-OF")
    assert (result.text, result.finish_reason, result.matched) == ("ok ", "stop", "END-OF")
    assert pieces == ["ok "]
    assert result.tokens == [2, 3, 4, 5]


def test_held_text_is_shown_when_it_was_no_stop() -> None:
    result, pieces = both(saying("ok ", "EN", "D!", end=True), stop="END-OF")
    assert (result.text, result.finish_reason, result.matched) == ("ok END!", "stop", 1)
    assert pieces == ["ok ", "END!"]


@pytest.mark.parametrize("end", [True, False])
def test_held_text_is_shown_at_the_end(end: bool) -> None:
    model = saying("ok ", "EN", "D-", end=end)
    result, pieces = both(model, stop="END-OF", max_new_tokens=4 if end else 3)
    assert (result.text, result.finish_reason) == ("ok END-", "stop" if end else "length")
    assert pieces == ["ok ", "END-"]


def test_of_two_stops_the_earliest_wins() -> None:
    for stops in (["EN", "END-OF"], ["END-OF", "EN"]):
        result, _ = both(saying("ok ", "EN", "D-", "OF"), stop=stops)
        assert (result.text, result.matched, result.tokens) == ("ok ", "EN", [2, 3])
    result, _ = both(saying("one B two A"), stop=["A", "B"])
    assert (result.text, result.matched) == ("one ", "B")


@pytest.mark.parametrize("text", ["xabcdeabc", "ababab!", "aab", "xyabcd", "", "abc", "bcd abcde"])
@pytest.mark.parametrize("stops", [[], ["abc"], ["bcd", "abcde"], ["b", "ab"], ["abab!"], ["zz", "!"]])
def test_the_answer_does_not_depend_on_how_tokens_cut_the_text(text: str, stops: list[str]) -> None:
    def run(pieces: list[str]) -> tuple[str, str | None]:
        machine = Text(stops)
        shown = "".join(machine.push(piece) for piece in pieces) + machine.flush()
        assert shown == machine.shown
        return shown, machine.matched

    by_character = run(list(text))
    cuts = [[text], [text[:3], text[3:]], [text[i : i + 2] for i in range(0, len(text), 2)], [text[:-1], text[-1:]]]
    assert all(run(pieces) == by_character for pieces in cuts)


def test_nothing_that_may_be_a_stop_is_shown_early() -> None:
    machine = Text(["stop"])
    assert [machine.push(piece) for piece in ("a s", "t", "o", "s", "top", "more")] == ["a ", "", "", "sto", "", ""]
    assert machine.matched == "stop"


@pytest.mark.parametrize("budget", range(1, 9))
def test_a_text_budget_is_kept_to_the_character(budget: int) -> None:
    result, _ = both(saying("abc", "def", "gh", end=True), max_text=budget)
    assert result.text == "abcdefgh"[:budget]
    assert result.finish_reason == "budget"
    assert len(result.tokens) == (budget + 2) // 3 if budget < 7 else 3


def test_a_text_budget_beyond_the_text_is_never_reached() -> None:
    result, _ = both(saying("abc", end=True), max_text=4)
    assert (result.text, result.finish_reason) == ("abc", "stop")


def test_budget_and_stop_together() -> None:
    result, _ = both(saying("ab", "EN", "D", "xyz"), stop="END", max_text=3)
    assert (result.text, result.finish_reason) == ("ab", "stop")
    result, _ = both(saying("ab", "EN", "x", "END"), stop="END", max_text=3)
    assert (result.text, result.finish_reason) == ("abE", "budget")
    result, _ = both(saying("abcdEND"), stop="END", max_text=3)
    assert (result.text, result.finish_reason, result.matched) == ("abc", "budget", None)


def test_stop_tokens_replace_the_models_own() -> None:
    model = saying("a", "b", "c", end=True)
    assert generate(model, [0]).tokens == [2, 3, 4, 1]
    result = generate(model, [0], stop_tokens=[3])
    assert (result.tokens, result.text, result.finish_reason, result.matched) == ([2, 3], "a", "stop", 3)
    result = generate(model, [0], stop_tokens=(), max_new_tokens=6)
    assert (len(result.tokens), result.finish_reason) == (6, "length")


def test_no_tokens_asked_for() -> None:
    result, pieces = both(saying("a"), max_new_tokens=0)
    assert (result.tokens, result.text, result.finish_reason, pieces) == ([], "", "length", [])


def test_stops_need_a_tokenizer() -> None:
    model = saying("a")
    model.tokenizer = None
    for options in ({"stop": "x"}, {"max_text": 3}):
        with pytest.raises(ClearheadError, match="no tokenizer"):
            generate(model, [0], **options)


def test_leaving_a_stream_early() -> None:
    pieces = stream(saying("a", "b", "c", end=True), [0])
    assert next(pieces) == "a"
    assert pieces.result.text == "a"
    assert pieces.result.finish_reason == "unfinished"
