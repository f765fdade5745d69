"""The claim that RMSNorm is cheaper and SwiGLU a gate."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

import clearhead.nn.feed_forward
import clearhead.nn.norm
from clearhead.ops.norms import layer_norm
from tests.claims.quick import measured, verdict


def test_holds() -> None:
    assert verdict("rms-norm") == "holds"


def test_steps_are_those_of_the_formula() -> None:
    """Square, sum, scale and weight; to 768 numbers, less than one in a hundred is not by the number."""
    steps = measured("rms-norm").series["steps"]
    assert steps["RMSNorm"] == pytest.approx(4, rel=0.01)
    assert steps["LayerNorm"] == pytest.approx(8, rel=0.01)


def test_fails_where_the_mean_is_taken_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_mean(x: Tensor, weight: Tensor, bias: Tensor | None, eps: float, round_first: bool = True) -> Tensor:
        return layer_norm(x, weight, bias, eps)

    monkeypatch.setattr(clearhead.nn.norm, "rms_norm", with_mean)
    assert verdict("rms-norm") == "does not hold"


def test_fails_where_the_gate_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    def adding(act: Any, gate: Tensor | None, up: Tensor) -> Tensor:
        return act(up) if gate is None else act(gate) + up

    monkeypatch.setattr(clearhead.nn.feed_forward, "_activated", adding)
    assert verdict("rms-norm") == "does not hold"
