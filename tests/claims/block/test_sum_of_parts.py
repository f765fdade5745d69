"""The claim that the stream is the sum of its parts."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from clearhead.nn.block import Block
from tests.claims.quick import verdict


def test_holds() -> None:
    assert verdict("sum-of-parts") == "holds"


def test_fails_where_a_sublayer_overwrites(monkeypatch: pytest.MonkeyPatch) -> None:
    correction = Block._correction

    def overwriting(self: Block, op: Any, norms: Any, c: Any, x_BTD: Tensor, p: Any) -> Tensor:
        return correction(self, op, norms, c, x_BTD, p) - x_BTD

    monkeypatch.setattr(Block, "_correction", overwriting)
    assert verdict("sum-of-parts") == "does not hold"
