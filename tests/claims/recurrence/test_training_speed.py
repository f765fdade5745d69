"""Chains of operations. Attention that goes token after token shows."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.claims.recurrence.training_speed import longest
from clearhead.nn.attention import Attention
from tests.claims.quick import verdict


def test_it_holds() -> None:
    assert verdict("training-speed") == "holds"


def test_attention_that_goes_token_after_token_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    attend = Attention.forward

    def one_by_one(self: Attention, x_BTD: Tensor, p: Any) -> Tensor:
        z_BTD = attend(self, x_BTD, p)
        carried, steps = z_BTD[:, 0], []
        for t in range(z_BTD.shape[1]):
            carried = carried * 0.5 + z_BTD[:, t]
            steps.append(carried)
        return torch.stack(steps, dim=1)

    monkeypatch.setattr(Attention, "forward", one_by_one)
    assert verdict("training-speed") == "does not hold"


def test_the_longest_path_is_counted() -> None:
    x = torch.ones(2, requires_grad=True)
    one = x * 2
    assert longest(one) == 2  # the product, and what keeps the parameter's gradient
    assert longest((one + 1) * 3 + one) == 5
