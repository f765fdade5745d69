"""Which parts have a plan, and what is refused by name."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from clearhead.errors import ClearheadError
from clearhead.model.build import build
from clearhead.nn.attention import Attention
from clearhead.nn.feed_forward import FeedForward
from clearhead.training.config import ScaleConfig
from clearhead.training.scale.tensor import attention_plan, feed_forward_plan
from tests.training.scale.courses import GROUPED, config_of, model_config


def parts(name: str = "grouped", **changes: int) -> tuple[Attention, FeedForward]:
    config = config_of(ScaleConfig(), model=replace(GROUPED, **changes))
    with torch.device("meta"):
        block = build(model_config(name, config)).layers[0]
    return block.mixer, block.ffn


def test_heads_and_hidden_units_are_shared() -> None:
    attention, feed_forward = parts()
    plan = {name: type(style).__name__ for name, style in attention_plan(attention, 2, "").items()}
    columns, rows = "ColwiseParallel", "RowwiseParallel"
    norms = {"q_norm": "Lies", "k_norm": "Lies"}
    assert plan == {"q_proj": columns, "k_proj": columns, "v_proj": columns, "o_proj": rows, **norms}
    plan = {name: type(style).__name__ for name, style in feed_forward_plan(feed_forward, 2, "").items()}
    assert plan == {"gate_proj": columns, "up_proj": columns, "down_proj": rows}


@pytest.mark.parametrize("name", ["slopes", "normed"])
def test_what_needs_all_heads_together_has_no_plan(name: str) -> None:
    attention, _ = parts(name)
    assert attention_plan(attention, 2, "layers.0.mixer") == {}


@pytest.mark.parametrize(
    ("changes", "n", "words"),
    [
        ({}, 3, "layers.0.mixer has 4 heads, which 3 processes can't share"),
        ({}, 4, "layers.0.mixer has 2 key-value heads, which 4 processes can't share"),
    ],
)
def test_heads_that_do_not_divide_are_named(changes: dict[str, int], n: int, words: str) -> None:
    with pytest.raises(ClearheadError, match=words):
        attention_plan(parts(**changes)[0], n, "layers.0.mixer")


def test_hidden_units_that_do_not_divide_are_named() -> None:
    with pytest.raises(ClearheadError, match=r"layers\.0\.ffn has 25 hidden units"):
        feed_forward_plan(parts(d_ff=25)[1], 2, "layers.0.ffn")


def test_an_adapter_is_named() -> None:
    attention, _ = parts()
    attention.q_proj = torch.nn.Sequential(attention.q_proj)
    with pytest.raises(ClearheadError, match=r"layers\.0\.mixer\.q_proj has an adapter"):
        attention_plan(attention, 2, "layers.0.mixer")
