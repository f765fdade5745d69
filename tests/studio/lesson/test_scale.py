"""Chapter 8's operations: held to the library, and to numbers worked out by hand."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import pytest
import torch

from clearhead.claims.scale.power_laws import KAPLAN
from clearhead.costs.traffic import Heads, tiled
from clearhead.errors import UsageError
from clearhead.studio.context import Studio
from clearhead.studio.lesson.scale import calculator as scale  # noqa: F401
from clearhead.studio.lesson.scale import (
    laws,
    remedies,  # noqa: F401
    service,  # noqa: F401
    tiles,  # noqa: F401
)
from clearhead.studio.models import Models
from clearhead.studio.operations import Answer, ask
from clearhead.studio.presets import writers
from tests.studio.snippets import assert_prints

torch.set_num_threads(1)
GIB = 2**30


@cache
def studio() -> Studio:
    return Studio(models=Models(), runs=None)  # type: ignore[arg-type]


def asked(name: str, **args: Any) -> Answer:
    found = ask(studio(), name, args)
    answer = found if isinstance(found, Answer) else list(found)[-1]
    assert isinstance(answer, Answer)
    return answer


# ---- the square and the line


def test_llama_3_70b_keeps_327680_bytes_a_token() -> None:
    data = asked("scale.cache").data
    assert data["per_token"] == 2 * 80 * 8 * 128 * 2 == 327_680 == 320 * 2**10
    assert data["total"] == 2.5 * GIB
    multi_head, published, multi_query = data["groups"]
    assert multi_head["per_token"] == 2560 * 2**10 and multi_head["kv_heads"] == 64
    assert published["per_token"] == data["per_token"]
    assert multi_query["per_token"] == data["per_token"] // 8
    assert data["squared"] == 8192**2 and data["n_matrices"] == 80 * 64


def test_the_formula_multiplies_out() -> None:
    for name in writers():
        data = asked("scale.cache", preset=name, context=3000, batch=3).data
        assert sum(term["per_token"] for term in data["formula"]) == data["per_token"], name
        if not any(term["kind"] == "cross" for term in data["formula"]):
            kept = sum(term["total"] for term in data["formula"])
            assert kept <= data["total"], name
    (term,) = asked("scale.cache").data["formula"]
    assert 2 * term["layers"] * term["kv_heads"] * term["d_head"] * term["width"] == term["per_token"]


def test_a_window_bounds_the_cache_and_a_scan_keeps_one_size() -> None:
    short, long = (asked("scale.cache", preset="mistral-7b", context=n).data for n in (4096, 2**20))
    windowed = [term["reach"] for term in short["formula"]]
    if windowed != [None]:
        assert short["total"] == long["total"] and long["growth"] == 0
    short, long = (asked("scale.cache", preset="mamba-2.8b", context=n).data for n in (100, 2**20))
    assert short["total"] == long["total"] > 0 and long["growth"] == 0


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"kv_heads": 64, "context": 131072, "batch": 7, "dtype": "int8"},
        {"kv_heads": 8},
        {"preset": "mamba-2.8b", "context": 2**20},
        {"preset": "deepseek-v3"},
        {"preset": "t5-small", "context": 512},
        {"preset": "gemma2-9b", "context": 100_000, "batch": 2},
    ],
)
def test_code_of_the_cache_prints_its_numbers(args: dict[str, Any]) -> None:
    assert_prints(asked("scale.cache", **args), least=4)


@pytest.mark.parametrize(
    "args",
    [{"preset": "bert-base"}, {"preset": "../../etc/passwd"}, {"kv_heads": 7}, {"context": 0}, {"dtype": "int4"}],
)
def test_what_has_no_cache_is_refused(args: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        asked("scale.cache", **args)


# ---- remedies


def test_every_remedy_saves_what_it_says() -> None:
    rows = {row["name"]: row for row in asked("scale.remedies", context=131072, window=4096).data["rows"]}
    full = rows["multi-head"]["at"]
    assert full == 320 * GIB
    assert rows["grouped, as published"]["at"] * 8 == full == rows["multi-query"]["at"] * 64
    assert rows["a window in every layer"]["at"] == 4096 * 327_680
    assert rows["a window in every other layer"]["at"] == (4096 + 131072) * 327_680 // 2
    assert rows["latent, as in DeepSeek-V3"]["at"] == 131072 * 80 * (512 + 64) * 2
    assert rows["scans alone (Mamba)"]["growth"] == rows["a window in every layer"]["growth"] == 0
    assert rows["grouped, as published"]["growth"] == 327_680
    assert rows["attention in one layer of four, else scans"]["growth"] == 327_680 // 4
    assert rows["a window in every other layer"]["growth"] == 327_680 // 2
    hybrid, scans = rows["attention in one layer of four, else scans"], rows["scans alone (Mamba)"]
    assert hybrid["at"] == 40 * GIB // 4 + scans["at"] * 3 // 4


@pytest.mark.parametrize("args", [{}, {"preset": "llama3-8b", "context": 5000, "window": 100, "dtype": "int8"}])
def test_code_of_remedies_prints_their_numbers(args: dict[str, Any]) -> None:
    assert_prints(asked("scale.remedies", **args), least=8)


def test_every_shape_has_remedies() -> None:
    for name in asked("scale.remedies").data["names"]:
        rows = asked("scale.remedies", preset=name).data["rows"]
        assert all(row["at"] <= rows[0]["at"] for row in rows[1:3]), name


def test_mixtral_stores_47_and_uses_13_billion() -> None:
    answer = asked("scale.experts")
    assert answer.data["rows"][answer.data["told"]]["name"] == "mixtral-8x7b"
    (mixtral,) = (row for row in answer.data["rows"] if row["name"].startswith("mixtral"))
    assert round(mixtral["stored"] / 1e9) == 47 and round(mixtral["used"] / 1e9) == 13
    assert (mixtral["n_chosen"], mixtral["n_experts"]) == (2, 8)
    assert_prints(answer, least=10)


# ---- steps, laws, models


def test_a_layer_of_attention_is_one_step_and_a_recurrent_one_a_step_a_token() -> None:
    answer = asked("scale.steps", context=1000)
    assert answer.data["at"]["model"] == 80 and answer.data["at"]["recurrent"] == 80_000
    assert_prints(answer, least=3)


@pytest.mark.parametrize("of", ["parameters", "data", "compute"])
def test_laws_are_straight_lines_with_kaplans_exponents(of: laws.Of) -> None:
    answer = asked("scale.laws", of=of, power=20)
    published = {"parameters": 0.076, "data": 0.095, "compute": 0.050}
    assert answer.data["exponent"] == pytest.approx(published[of]) == pytest.approx(KAPLAN[of])
    assert answer.data["alpha"] == published[of]
    amount = answer.data["days"] or answer.data["at"]
    assert answer.data["curves"][0]["at"] == pytest.approx((answer.data["constant"] / amount) ** answer.data["alpha"])
    low, high = answer.data["ranges"][of]
    assert answer.data["curves"][0]["x"][0] == 10.0**low and answer.data["curves"][0]["x"][-1] == 10.0**high
    assert_prints(answer, least=3)


def test_hoffmanns_law_ends_at_its_floor() -> None:
    curve = next(c for c in asked("scale.laws", of="data").data["curves"] if c["name"].startswith("Hoffmann"))
    assert curve["y"][-1] == pytest.approx(1.6934 + 410.7 / (1e14) ** 0.2849)


def test_the_table_has_every_model_that_writes() -> None:
    answer = asked("scale.models", context=8192)
    rows = {row["name"]: row for row in answer.data["rows"]}
    assert set(rows) == set(writers())
    llama = rows["llama3-70b"]
    assert (llama["layers"], llama["heads"], llama["kv_heads"], llama["per_token"]) == (80, 64, 8, 327_680)
    assert rows["mamba-2.8b"]["heads"] is None and rows["mamba-2.8b"]["scans"] == rows["mamba-2.8b"]["layers"]
    assert rows["deepseek-v3"]["latent"] and rows["mixtral-8x7b"]["experts"] == [2, 8]
    assert rows["gemma2-9b"]["window"] == 4096
    assert_prints(answer, least=3 * len(rows))


@pytest.mark.parametrize("only", ["grouped", "windows", "experts", "scans"])
def test_the_table_can_be_cut_to_one_remedy(only: str) -> None:
    answer = asked("scale.models", only=only)
    assert len(answer.data["rows"]) == answer.data["numbers"][only] < len(writers())
    assert_prints(answer, least=3)


def test_the_first_model_cost_a_third_of_its_cheapest_rival() -> None:
    answer = asked("scale.first")
    rows = answer.data["rows"]
    assert rows[0]["name"] == "Transformer, base" and rows[0]["flops"] / rows[1]["flops"] < 0.35
    (told,) = (row for row in rows if row["told"])
    assert told["flops"] == 12 * 3600 * answer.data["gpus"] * answer.data["sustained"]
    rivals = [row for row in rows if not row["ours"]]
    assert all(told["flops"] < row["flops"] and told["bleu"] > row["bleu"] for row in rivals), "what the page says"
    assert_prints(answer, least=2)


# ---- tiles


def test_after_the_last_tile_the_result_is_exact() -> None:
    data = asked("scale.tiles", n=16, tile=4, step=16).data
    assert data["off"] < 1e-12 and data["library_off"] < 1e-12
    assert data["moved"] == data["moved_in_all"] == tiled(16, 16, Heads(1, 4, 4), 4 * 4 * 4)
    assert data["moved"] == 2 * 16 * 4 + 4 * 3 * 16 * 4
    assert data["standard"] == 4 * 16 * 4 + 4 * 16 * 16


def test_the_running_maximum_grows_and_the_output_is_of_what_was_seen() -> None:
    tops = [asked("scale.tiles", n=12, tile=3, step=step, q=0).data["top"][0] for step in (1, 5, 9, 13)]
    assert tops == sorted(tops)
    answer = asked("scale.tiles", n=12, tile=3, step=1, q=0)
    scores = answer.arrays["scores"][0, :3]
    assert answer.data["top"][0] == pytest.approx(float(scores.max()))
    assert answer.data["sum"][0] == pytest.approx(float((scores - scores.max()).exp().sum()))
    assert asked("scale.tiles", n=12, tile=3, step=1, q=11).data["top"][11] is None


@pytest.mark.parametrize(("n", "tile"), [(16, 4), (13, 5), (8, 8), (9, 1), (32, 7)])
def test_code_of_tiles_is_an_online_softmax_of_its_own(n: int, tile: int) -> None:
    steps = (-(-n // tile)) ** 2
    for step in {0, 1, steps // 2, steps - 1, steps}:
        assert_prints(asked("scale.tiles", n=n, tile=tile, step=step, q=n // 2), least=6)


@pytest.mark.parametrize("args", [{}, {"preset": "gpt2", "context": 1024, "fast": 64}, {"preset": "deepseek-v3"}])
def test_code_of_traffic_prints_its_numbers(args: dict[str, Any]) -> None:
    assert_prints(asked("scale.traffic", **args), least=2)


def test_every_model_that_is_offered_moves_a_matrix() -> None:
    names = asked("scale.traffic").data["names"]
    assert "mamba-2.8b" not in names and "llama3-70b" in names
    for name in names:
        assert asked("scale.traffic", preset=name, context=128).data["times"] > 0


def test_a_model_without_attention_moves_no_matrix() -> None:
    with pytest.raises(UsageError, match="attention"):
        asked("scale.traffic", preset="mamba-2.8b")


# ---- service


def test_users_are_the_room_over_what_a_text_keeps() -> None:
    data = asked("scale.service").data
    assert data["users"] == data["room"] // data["per_text"]
    assert data["longest"] == data["room"] // 327_680
    assert data["alone"]["price"] > data["together"]["price"]
    assert math.isclose(data["curve"]["price"][0], data["alone"]["price"])


@pytest.mark.parametrize(
    "args",
    [
        {},
        {"kv_heads": 64, "n_devices": 0},
        {"preset": "mamba-2.8b", "device": "l4", "n_devices": 1, "price": 0.7, "context": 100_000},
        {"preset": "gpt2", "device": "t4", "n_devices": 1, "context": 8192},
    ],
)
def test_code_of_service_prints_its_numbers(args: dict[str, Any]) -> None:
    if args.get("device") == "t4":
        with pytest.raises(UsageError):  # it has no peak for bfloat16
            asked("scale.service", **args)
        return
    assert_prints(asked("scale.service", **args), least=5)


def test_clear_2l_finds_values_wherever_they_stand() -> None:
    answer = asked("scale.middle", pairs=8)
    assert sum(answer.data["found"]) / 8 > 0.6
    intervals = zip(answer.data["low"], answer.data["found"], answer.data["high"], strict=True)
    assert all(low <= share <= high for low, share, high in intervals)
    assert_prints(answer, least=8)
