"""Chapter 5: what its figures say is what the library computes, and hand-worked where it can be."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from clearhead.claims.positions.distance_only import order_kept, similarity
from clearhead.claims.positions.linear_shift import rotation
from clearhead.config import RotaryConfig, YarnScaling
from clearhead.errors import UsageError
from clearhead.nn.rotary import frequencies
from clearhead.ops import positions as ops
from clearhead.studio.lesson.positions import absolute as positions
from clearhead.studio.lesson.positions import rotary
from tests.studio.snippets import assert_prints

torch.set_num_threads(1)

TURN = 2 * math.pi


# ---- shuffle the words


def test_without_positions_the_outputs_only_move() -> None:
    for order in ([2, 1, 0], [1, 2, 0], [0, 2, 1]):
        found = positions.shuffle(order=order, kind="none")
        assert found.data["same"] and found.data["largest"] < 1e-12
        np.testing.assert_allclose(found.arrays["after"], found.arrays["before"][found.data["moved"]], atol=1e-12)


@pytest.mark.parametrize("kind", ["rotary", "causal"])
def test_with_positions_or_a_causal_mask_they_change(kind: positions.Kind) -> None:
    assert positions.shuffle(order=[0, 1, 2], kind=kind).data["largest"] == 0
    found = positions.shuffle(order=[2, 1, 0], kind=kind)
    assert not found.data["same"] and max(found.data["changed"]) > 0.02


def test_a_word_of_several_tokens_moves_as_one() -> None:
    found = positions.shuffle(text="dog bites man", order=[1, 0, 2])
    dog, bites, man = found.data["words"]
    assert bites["pieces"] == ["bit", "es"] and found.data["moved"] == [*bites["slots"], *dog["slots"], *man["slots"]]


def test_an_order_that_does_not_fit_the_text_is_that_of_the_text() -> None:
    for order in ([0, 0, 1], [0, 1], [0, 1, 2, 3], []):
        assert positions.shuffle(order=order).data["order"] == [0, 1, 2]


@pytest.mark.parametrize("text", ["   ", "a b c d e f g h i j k l"])
def test_too_few_or_too_many_words_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"no word|fit here"):
        positions.shuffle(text=text)


@pytest.mark.parametrize("kind", ["none", "rotary", "causal"])
def test_the_code_of_the_shuffle_prints_its_numbers(kind: positions.Kind) -> None:
    assert_prints(positions.shuffle(order=[2, 0, 1], kind=kind, text="cats chase mice"), least=4)


# ---- sinusoids


def test_a_number_of_the_table_is_a_sine_worked_by_hand() -> None:
    found = positions.table(d=16, place=3, dimension=6, places=32)
    assert found.data["value"] == pytest.approx(math.sin(3 / 10_000 ** (6 / 16)), abs=1e-6)
    assert found.data["wavelength"] == pytest.approx(2 * math.pi * 10_000 ** (6 / 16), rel=1e-6)
    assert found.data["shortest"] == pytest.approx(2 * math.pi) and found.data["wave"] == "sine"
    assert torch.equal(found.arrays["table"], ops.sinusoids(torch.arange(32), 16))
    assert_prints(found, least=4)


def test_a_place_outside_the_table_is_brought_to_its_edge() -> None:
    found = positions.table(d=16, places=20, place=255, dimension=127)
    assert (found.data["place"], found.data["dimension"], found.data["wave"]) == (19, 15, "cosine")


def test_the_curve_slides_along_with_its_place() -> None:
    one, other = (positions.similar(d=64, place=place).arrays["curve"] for place in (50, 120))
    np.testing.assert_allclose(one[:200], other[70:270], atol=1e-5)
    assert float(one[50]) == pytest.approx(1, abs=1e-6) and int(one.argmax()) == 50


def test_how_strictly_near_is_higher_is_what_the_claim_measures() -> None:
    found = positions.similar(d=128).data
    curve_K = similarity(128, 200).mean(0)
    assert found["order_kept"] == order_kept(curve_K)
    turn = int(found["turns"])
    assert (curve_K.diff()[:turn] <= 0).all() and curve_K[turn + 1] > curve_K[turn]
    assert found["pairs"] == sum(1 for far in range(found["farthest"] + 1) for near in range(far))
    near, far = (slice(first, last + 1) for first, last in (found["near_are"], found["far_are"]))
    assert (found["near"], found["far"]) == (float(curve_K[near].mean()), float(curve_K[far].mean()))
    assert 0.8 < found["order_kept"] < 0.95  # not always: that is what the page says
    assert_prints(positions.similar(d=512, place=10, other=250), least=6)


def test_a_step_is_one_rotation_wherever_it_starts() -> None:
    for place in (0, 7, 900):
        found = positions.clock(place=place, step=5)
        assert found.data["off"] < 1e-4
        here_D = found.arrays["hands"].flatten()
        np.testing.assert_allclose(here_D @ rotation(5), found.arrays["moved"].flatten(), atol=1e-4)
        assert found.data["degrees"][0] == pytest.approx(5 * 180 / math.pi)
        assert_prints(found, least=3)


def test_a_hand_turns_by_its_frequency_at_each_place() -> None:
    found = positions.clock(place=3, step=7).data
    np.testing.assert_allclose(found["frequencies"], [10_000.0 ** (-i / 16) for i in range(16)], rtol=1e-6)
    np.testing.assert_allclose(found["turns"], [7 * w for w in found["frequencies"]], rtol=1e-12)
    np.testing.assert_allclose([a * b for a, b in zip(found["frequencies"], found["wavelengths"], strict=True)], TURN)


def test_answers_say_what_was_asked() -> None:
    """A figure's sentence is of the answer that it shows, and not of the question that is on its way."""
    shuffled = positions.shuffle(kind="causal").data
    assert shuffled["kind"] == "causal" and shuffled["shown"] == positions.SHOWN
    assert {key: positions.table(d=64, places=20).data[key] for key in ("d", "places")} == {"d": 64, "places": 20}
    assert positions.similar(d=64).data["d"] == 64
    assert rotary.rotary(query=9, key=2, shift=5).data["shift"] == 5
    stretched = rotary.stretch(like="qwen3-8b", way="linear", factor=3.0).data
    assert (stretched["like"], stretched["way"], stretched["factor"]) == ("qwen3-8b", "linear", 3.0)


# ---- rotating pairs


def test_the_score_depends_on_the_offset_alone() -> None:
    one = rotary.rotary(query=12, key=4, shift=0)
    other = rotary.rotary(query=12, key=4, shift=333)
    assert other.data["score"] == pytest.approx(one.data["score"], abs=1e-12)
    assert rotary.rotary(query=13, key=4).data["score"] != pytest.approx(one.data["score"], abs=1e-3)
    assert_prints(other, least=4)
    assert len(one.printed) == 3  # unmoved, one score says it all
    assert_prints(one, least=3)


def test_the_score_before_the_move_is_that_of_the_places_before_it() -> None:
    moved = rotary.rotary(query=40, key=11, shift=200, seed=5)
    still = rotary.rotary(query=40, key=11, seed=5)
    assert moved.data["unmoved"] == still.data["score"] == moved.printed[1]
    assert (moved.data["query"], moved.data["key"], moved.data["apart"]) == (240, 211, 29)


def test_the_parts_of_the_pairs_make_the_score_and_the_curve_has_it() -> None:
    found = rotary.rotary(query=30, key=10, seed=3)
    assert sum(found.data["parts"]) == pytest.approx(found.data["score"])
    assert float(found.arrays["curve"][found.data["offsets"].index(20)]) == pytest.approx(found.data["score"])
    by_hand = (found.arrays["query"] * found.arrays["key"]).sum(-1) / 4  # the root of a head of 16
    np.testing.assert_allclose(by_hand, found.data["parts"], atol=1e-12)


def test_a_rotation_keeps_lengths() -> None:
    found = rotary.rotary(query=77, key=3)
    turned, still = found.arrays["query"].norm(dim=-1), found.arrays["query_at_0"].norm(dim=-1)
    np.testing.assert_allclose(turned, still, atol=1e-12)


# ---- a longer context


@pytest.mark.parametrize("like", ["clear-gpt", "pythia-160m", "mistral-7b", "qwen3-8b", "llama3-8b"])
@pytest.mark.parametrize("way", ["none", "linear", "dynamic", "yarn", "llama3", "longrope"])
def test_the_code_of_a_scaling_prints_its_wavelengths(like: rotary.Like, way: rotary.Way) -> None:
    assert_prints(rotary.stretch(like=like, way=way, factor=4.0, pair=5), least=5)


def test_what_each_scaling_does_to_fast_and_slow_pairs() -> None:
    found = {way: rotary.stretch(like="llama3-8b", way=way, factor=8.0).data for way in rotary.WAYS}
    assert found["none"]["ratio_slowest"] == 1
    assert found["linear"]["ratio_fastest"] == pytest.approx(8) == found["linear"]["ratio_slowest"]
    for way in ("dynamic", "yarn", "llama3", "longrope"):
        assert found[way]["ratio_fastest"] == pytest.approx(1) and found[way]["ratio_slowest"] == pytest.approx(
            8, rel=1e-4
        )
    assert found["yarn"]["gain"] == pytest.approx(0.1 * math.log(8) + 1)


def test_waves_are_those_of_the_librarys_tables() -> None:
    found = rotary.stretch(like="clear-gpt", way="yarn", factor=4.0)
    config = RotaryConfig(base=10_000.0, scaling=YarnScaling(factor=4.0, trained_length=512))
    frequency_K, _ = frequencies(config, 64, 2048)
    np.testing.assert_allclose(found.arrays["yarn"], 2 * math.pi / frequency_K.double(), rtol=1e-9)
