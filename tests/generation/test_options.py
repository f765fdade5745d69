"""Options: unknown ones and values out of range are refused by name, values per row are handed out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clearhead.errors import UsageError
from clearhead.generation import generate
from clearhead.generation.options import read_rows
from tests.generation.scripted import saying


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("max_tokens", "max_new_tokens"), ("temprature", "temperature"), ("topk", "top_k"), ("stop_strings", "stop")],
)
def test_an_unknown_option_is_refused_with_the_nearest(wrong: str, right: str) -> None:
    with pytest.raises(UsageError, match=f"no option {wrong}; did you mean {right}"):
        generate(saying("a"), [0], **{wrong: 1})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -0.5),
        ("temperature", float("nan")),
        ("temperature", "hot"),
        ("top_k", -1),
        ("top_k", 2.5),
        ("top_p", 1.5),
        ("min_p", -0.1),
        ("max_new_tokens", -1),
        ("max_new_tokens", True),
        ("max_text", 0),
        ("stop", ["a", ""]),
        ("stop_tokens", ["x"]),
        ("overflow", "cut"),
        ("repetition_penalty", 0.0),
        ("presence_penalty", float("inf")),
        ("prefill_chunk", 0),
        ("top_logprobs", -1),
        ("seed", 1.5),
        ("logit_bias", {0: float("nan")}),
    ],
)
def test_a_value_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(UsageError, match=name):
        generate(saying("a"), [0], **{name: value})


def test_values_per_row() -> None:
    rows = read_rows({"temperature": [0.0, 0.7], "seed": (5, 6), "max_new_tokens": 3, "stop": "x"}, 2)
    assert [row.sampling.temperature for row in rows] == [0.0, 0.7]
    assert [row.sampling.seed for row in rows] == [5, 6]
    assert [row.limits.max_new_tokens for row in rows] == [3, 3]
    assert rows[0].limits.stop == ("x",)
    with pytest.raises(UsageError, match="temperature has 2 values for 3 prompts"):
        read_rows({"temperature": [0.0, 0.7]}, 3)


def test_sampling_is_on_when_a_sampling_option_is_given() -> None:
    assert read_rows({}, 1)[0].sampling.temperature == 0
    for options in ({"top_k": 5}, {"top_p": 0.9}, {"min_p": 0.1}, {"seed": 0}):
        assert read_rows(options, 1)[0].sampling.temperature == 1
    assert read_rows({"seed": 1, "temperature": 0.0}, 1)[0].sampling.temperature == 0


def test_without_a_seed_torch_rules() -> None:
    torch.manual_seed(3)
    first = [row.sampling.seed for row in read_rows({}, 2)]
    second = [row.sampling.seed for row in read_rows({}, 2)]
    torch.manual_seed(3)
    assert first == [row.sampling.seed for row in read_rows({}, 2)]
    assert len({*first, *second}) == 4
