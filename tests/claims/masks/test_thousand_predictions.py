"""The claim of a thousand predictions in one pass."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from torch import Tensor

import clearhead.nn.attention
from clearhead.ops.masks import Mask
from tests.claims.quick import verdict


@dataclass(frozen=True)
class OneAhead(Mask):
    """A causal mask that is off by one."""

    def allow(self, q_pos: Tensor, k_pos: Tensor, batch: Tensor) -> Tensor:
        return k_pos <= q_pos + 1


def test_holds() -> None:
    assert verdict("thousand-predictions") == "holds"


def test_fails_where_a_token_sees_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clearhead.nn.attention, "mask_from", lambda config: OneAhead())
    assert verdict("thousand-predictions") == "does not hold"
