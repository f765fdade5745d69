"""Models side by side, and costs against the length of the texts."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from clearhead.costs.compare import POINTS, Comparison, compare
from clearhead.costs.cost import cost
from clearhead.costs.units import digits, in_bytes, in_counts, in_dollars, in_flops, in_rate, in_seconds
from clearhead.errors import UsageError


def comparison() -> Comparison:
    asked = {"context": 1024, "batch": 4, "device": "h200", "price_per_hour": 3.0}
    return compare(("llama3-8b", "mixtral-8x7b", "mamba"), **asked)


def test_all_are_asked_about_the_longest_text_that_each_was_made_for() -> None:
    """GPT-2 was made for 1,024 tokens, Llama 3 for 8,192; a ViT always reads 197."""
    found = compare(("llama3-8b", "gpt2", "vit-b-16", "mamba"))
    assert [one.ask.context for one in found.costs] == [1024, 1024, 197, 1024]
    assert compare(("mamba",)).costs[0].ask.context == 2048
    with pytest.raises(UsageError, match="1,024 tokens"):
        compare(("llama3-8b", "gpt2"), context=2000)


def test_each_has_a_column() -> None:
    out = io.StringIO()
    comparison().print(Console(file=out, width=140))
    lines = out.getvalue().splitlines()
    assert lines[0].split() == ["llama3-8b", "mixtral-8x7b", "mamba"]
    rows = dict(comparison().rows())
    assert rows["parameters"][:2] == ["8.03 B", "46.7 B"] and rows["active for a token"][1] == "12.9 B"
    assert rows["state, bytes a token"] == ["131,072", "131,072", "0"]
    assert rows["state outweighs weights"][2] == "never" and rows["made for"][2] == "any length"
    assert len(comparison().to_json()["models"]) == 3


def test_what_one_lacks_is_a_dash() -> None:
    rows = dict(Comparison((cost("bert-base"), cost("gpt2"))).rows())
    assert rows["state"] == ["-", "36 MiB"]  # 2 x 12 layers x 768 numbers of 2 bytes, of 1,024 tokens


def test_curves_of_one_model_cross_where_the_state_outweighs_the_weights() -> None:
    found = cost("llama3-8b", batch=32)
    (memory,) = found.charts()
    state, weights = memory.curves
    assert len(state.points) == POINTS and state.points[-1] == (found.ask.context, found.state_bytes)
    assert {y for _, y in weights.points} == {found.weight_bytes}
    where = found.outweighs
    assert where is not None
    assert all((y >= found.weight_bytes) == (n >= where) for n, y in state.points)


def test_curves_of_several_models() -> None:
    memory, speed = comparison().charts()
    assert [curve.name for curve in memory.curves] == ["llama3-8b, state", "mixtral-8x7b, state", "mamba, state"]
    assert [curve.name for curve in speed.curves] == ["llama3-8b", "mixtral-8x7b", "mamba"]
    llama, _, mamba = speed.curves
    assert llama.points[0][1] > llama.points[-1][1]
    assert mamba.points[0][1] == pytest.approx(mamba.points[-1][1])
    assert mamba.points[-1][0] == 131072  # it was made for any length


def test_sizes_in_words() -> None:
    assert in_bytes(2.5 * 2**30) == "2.5 GiB" and in_bytes(1536) == "1.5 KiB" and in_bytes(12) == "12 B"
    assert in_counts(70_553_706_496) == "70.6 B" and in_counts(1.234e20) == "1.23e20" and in_counts(12) == "12"
    assert in_flops(1.31e15) == "1.31 PFLOP" and in_flops(3.79e25) == "3.79e25 FLOP" and in_flops(5) == "5 FLOP"
    assert in_rate(3.35e12) == "3.35 TB/s" and in_rate(999) == "999 B/s"
    assert in_seconds(0.0421) == "42.1 ms" and in_seconds(7200) == "2 h" and in_seconds(3e-6) == "3 us"
    assert in_seconds(float("inf")) == "no end"
    assert in_dollars(1234.5) == "$1,234" and in_dollars(0.01234) == "$0.0123" and in_dollars(0) == "$0"
    assert digits(999.4) == "999" and digits(0.5) == "0.5" and digits(1e-12) == "1.00e-12"
