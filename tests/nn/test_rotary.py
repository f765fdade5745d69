"""Rotary tables made for a stretch of a text at a time: those of each token alone, to the bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from clearhead.config import DynamicScaling, LinearScaling, RotaryConfig
from clearhead.forward import Pass, Places
from clearhead.nn.rotary import STRETCH, rotary_tables
from clearhead.ops.masks import Positions
from clearhead.state import State

WIDTH = 24


def tables(config: RotaryConfig, start: int, state: State | None, n: int = 1) -> tuple[Tensor, Tensor]:
    positions = Positions(span=(start, start + n))
    places = Places(positions, start + n, torch.device("cpu"))
    return rotary_tables(config, WIDTH, Pass(positions=positions, places=places, state=state), torch.float32)


@pytest.mark.parametrize(
    "config",
    [
        RotaryConfig(base=10_000.0),
        RotaryConfig(base=10_000.0, interleaved=True, scaling=LinearScaling(factor=3.0)),
        RotaryConfig(base=10_000.0, scaling=DynamicScaling(factor=2.0, trained_length=8)),
    ],
)
@torch.inference_mode()
def test_a_stretch_has_the_tables_of_each_token(config: RotaryConfig) -> None:
    state = State({})
    for start in [0, 1, STRETCH - 1, STRETCH, 5 * STRETCH + 3, 5 * STRETCH + 4, 7]:
        for got, want in zip(tables(config, start, state), tables(config, start, None), strict=True):
            assert got.shape == (1, 1, 1, WIDTH) and torch.equal(got, want)


def test_what_was_made_while_writing_serves_where_a_gradient_is_wanted() -> None:
    config, state = RotaryConfig(base=10_000.0), State({})
    with torch.inference_mode():
        tables(config, 3, state)
    x = torch.ones(WIDTH, requires_grad=True)
    cos, _ = tables(config, 4, state)
    (x * cos).sum().backward()
    assert x.grad is not None and torch.equal(x.grad, cos.flatten())
