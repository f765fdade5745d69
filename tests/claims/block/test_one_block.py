"""The claim that one block reads text, pictures, sound and proteins."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from clearhead.nn.block import Block
from tests.claims.quick import verdict

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("antiberty")]


def test_holds() -> None:
    assert verdict("one-block") == "holds"


def test_fails_where_the_block_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def idle(self: Block, x_BTD: Tensor, p: Any) -> Tensor:
        return x_BTD

    monkeypatch.setattr(Block, "forward", idle)
    assert verdict("one-block") == "does not hold"
