"""The demo on a tiny model: its numbers are those of `look`, and its errors are sentences."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from clearhead.errors import ClearheadError
from clearhead.lens import demo, look


@pytest.fixture
def shown(model, monkeypatch):
    """What the demo prints for a sentence."""
    monkeypatch.setattr(demo, "_load", lambda console: model)
    monkeypatch.setattr("clearhead.generation.stream", lambda model, text, **options: iter((" go", " on")))

    def show(sentence: str, width: int = 80) -> str:
        console = Console(width=width, file=io.StringIO(), highlight=False, no_color=True)
        demo.show(console, sentence)
        return console.file.getvalue()

    return show


@pytest.mark.parametrize("width", [80, 120])
def test_the_heads_shown_are_those_that_look_most(shown, model, width):
    sentence = "abcdef"
    text = shown(sentence, width)
    assert "abcdef go on" in text
    found = [
        (int(layer), int(head), float(weight))
        for layer, head, weight in re.findall(r"layer (\d+), head (\d+) +\S+ (\d\.\d\d)", text)
    ]
    seen = look(model, sentence)
    rows = {
        (layer, head): seen[f"layers.{layer}.mixer.pattern"][0, head, -1] for layer in range(2) for head in range(4)
    }
    total_S = sum(rows.values())
    key = 1 + int(total_S[1:-2].argmax())
    best = sorted(rows, key=lambda place: -rows[place][key])[:3]
    assert [place[:2] for place in found] == best
    assert [place[2] for place in found] == [pytest.approx(float(rows[place][key]), abs=0.005) for place in best]
    assert text.count("percent") == 1


def test_the_sentence_of_the_demo_compares_are_with_is(shown, model):
    text = shown(demo.SENTENCE)
    shares_V = look(model, demo.SENTENCE).output[0, -1].softmax(-1)
    are, is_ = (model.tokenizer.encode(rival)[-1] for rival in demo.RIVALS)
    assert f"{shares_V[are] / shares_V[is_]:.1f} times as likely" in " ".join(text.split())


@pytest.mark.parametrize("sentence", ["a", "ab", 'say "hi" $HOME'])
def test_any_sentence_will_do(shown, sentence):
    text = shown(sentence)
    assert "What it expected next" in text
    if '"' in sentence:
        assert "'say \"hi\" $HOME'" in text


def test_a_model_that_is_not_there_is_one_sentence_and_an_exit_code(monkeypatch, capsys):
    def missing(console):
        raise ClearheadError("gemma3-270m is not installed")

    monkeypatch.setattr(demo, "_load", missing)
    assert demo.main([]) == 1
    assert capsys.readouterr().err == "demo: gemma3-270m is not installed\n"
