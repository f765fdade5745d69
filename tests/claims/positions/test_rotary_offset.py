"""RoPE's scores and the offset."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from clearhead.nn import attention
from clearhead.ops import positions
from tests.claims.quick import measured, verdict


def test_it_holds() -> None:
    assert verdict("rotary-offset") == "holds"


def test_the_bound_is_the_papers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Su 2021, section 3.4.3, d = 64, worked out apart: .54, .35, .46 of 1.02."""
    values = measured("rotary-offset").values
    for offset, paper in ((10, 0.54), (50, 0.35), (100, 0.46)):
        assert values[f"upper bound at {offset}"] == pytest.approx(paper / 1.02, abs=0.01)


def test_not_where_angles_do_not_grow_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    rotary_tables = positions.rotary_tables

    def squared(position: Tensor, *rest: object) -> tuple[Tensor, Tensor]:
        made: Callable[..., tuple[Tensor, Tensor]] = rotary_tables
        return made(position**2, *rest)

    monkeypatch.setattr(positions, "rotary_tables", squared)
    assert verdict("rotary-offset") == "does not hold"


def test_not_where_a_model_turns_every_other_token_the_other_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def wavering(x_BHTK: Tensor, tables: tuple[Tensor, Tensor], interleaved: bool) -> Tensor:
        cos, sin = tables[0], tables[1].clone()
        sin[..., ::2, :] *= -1
        return positions.rotate(x_BHTK, cos, sin, interleaved)

    monkeypatch.setattr(attention, "turned", wavering)
    assert verdict("rotary-offset") == "does not hold"


def test_not_where_nothing_is_turned(monkeypatch: pytest.MonkeyPatch) -> None:
    def still(x_BHTK: Tensor, *rest: Any) -> Tensor:
        return x_BHTK

    monkeypatch.setattr(positions, "rotate", still)
    monkeypatch.setattr(attention, "turned", still)
    assert verdict("rotary-offset") == "does not hold"
