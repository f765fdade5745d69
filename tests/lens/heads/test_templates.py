"""Sentences: balanced, and found again in a tokenizer's tokens."""

from __future__ import annotations

from collections import Counter

import pytest

import clearhead
from clearhead.inputs.tokenizer import Tokenizer
from clearhead.lens.heads.templates import BRACKETS, PRONOUN, PROSE, TEMPLATES, sentence, unmarked, writes


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return clearhead.load("clear-2l").tokenizer


def test_marks_are_taken_out_and_kept_as_places() -> None:
    text, spans = unmarked("The «keys» to the ‹cabinet› ⟨are⟩ here.")
    assert text == "The keys to the cabinet are here."
    assert {name: text[a:b] for name, (a, b) in spans.items()} == {"target": "keys", "rival": "cabinet", "query": "are"}


@pytest.mark.parametrize("template", [text for texts in TEMPLATES.values() for text in texts])
def test_every_sentence_asks_one_thing_of_what_came_before(template) -> None:
    text, spans = unmarked(template)
    assert set(spans) == {"target", "rival", "query"}
    assert max(spans["target"][0], spans["rival"][0]) < spans["query"][0]
    assert not set("«»‹›⟨⟩") & set(text)


@pytest.mark.parametrize("name", TEMPLATES)
def test_what_is_right_is_as_often_the_first_as_the_second(name) -> None:
    spans = [unmarked(template)[1] for template in TEMPLATES[name]]
    first = sum(span["target"] < span["rival"] for span in spans)
    assert abs(2 * first - len(spans)) <= 2


def test_pronouns_go_by_what_they_mean_and_brackets_by_what_they_close() -> None:
    said = [({name: text[a:b] for name, (a, b) in spans.items()}) for text, spans in map(unmarked, PRONOUN)]
    assert Counter(s["target"] for s in said) == Counter(s["rival"] for s in said)
    pairs = {")": "(", "]": "[", "}": "{"}
    for text, spans in map(unmarked, BRACKETS):
        assert text[slice(*spans["target"])] == pairs[text[slice(*spans["query"])]]
        opened: list[int] = []
        for place, sign in enumerate(text):
            if sign in pairs.values():
                opened.append(place)
            elif sign in pairs:
                at = opened.pop()
                assert text[at] == pairs[sign]
                if place == spans["query"][0]:
                    assert at == spans["target"][0]
        assert not opened


def test_places_are_those_of_the_tokens(tokenizer) -> None:
    """A word in several tokens counts with all of them; a query is the last of its own."""
    for texts in TEMPLATES.values():
        for template in texts:
            found = sentence(tokenizer, template)
            text, spans = unmarked(template)
            assert found is not None
            assert found.ids == tokenizer.encode(text, bos=False)
            for name in ("target", "rival"):
                ids = [found.ids[place] for place in getattr(found, name)]
                assert tokenizer.decode(ids).strip() == text[slice(*spans[name])]
            upto = tokenizer.decode(found.ids[: found.query + 1])
            assert upto == text[: spans["query"][1]]


def test_what_can_not_be_written_is_not_asked(tokenizer) -> None:
    numbers = clearhead.load("clear-speech").tokenizer  # letters and words of numbers, no brackets
    assert writes(tokenizer, PROSE)
    assert not writes(numbers, PROSE)
    assert all(sentence(numbers, template) is None for texts in TEMPLATES.values() for template in texts)
    # Two brackets in one token would be two answers in one.
    assert sentence(tokenizer, "we saw «(»‹(›x ) ⟨)⟩") is not None
    assert sentence(tokenizer, "the «k»eys ‹o›f the doo⟨r⟩") is None
