"""One layer of attention among scans. One that sees nothing but its own token shows."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from clearhead.nn.attention import Attention
from tests.claims.quick import verdict


@pytest.mark.slow
def test_it_holds() -> None:
    assert verdict("one-in-four") == "holds"


@pytest.mark.slow
def test_attention_that_says_nothing_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    attend = Attention.forward

    def silent(self: Attention, x_BTD: Tensor, p: Any) -> Tensor:
        return attend(self, x_BTD, p) * 0

    monkeypatch.setattr(Attention, "forward", silent)
    assert verdict("one-in-four") == "does not hold"
