"""The claim that cross-attention reads the source."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.nn.cross_attention import CrossAttention
from tests.claims.quick import verdict


def test_holds() -> None:
    assert verdict("reads-the-source") == "holds"


def test_fails_where_cross_attention_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = CrossAttention.forward

    def silent(self: CrossAttention, x_BTD: Tensor, p: Any) -> Tensor:
        return torch.zeros_like(forward(self, x_BTD, p))

    monkeypatch.setattr(CrossAttention, "forward", silent)
    assert verdict("reads-the-source") == "does not hold"
