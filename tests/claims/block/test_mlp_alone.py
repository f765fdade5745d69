"""The claim that the MLP mixes no tokens."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

import clearhead.nn.experts
from clearhead.nn.feed_forward import FeedForward
from tests.claims.quick import verdict


def test_holds() -> None:
    assert verdict("mlp-alone") == "holds"


def test_fails_where_the_mlp_reads_the_mean_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = FeedForward.forward

    def mixing(self: FeedForward, x_BTD: Tensor, p: Any) -> Tensor:
        return forward(self, x_BTD + 1e-6 * x_BTD.mean(dim=1, keepdim=True), p)

    monkeypatch.setattr(FeedForward, "forward", mixing)
    assert verdict("mlp-alone") == "does not hold"


def test_fails_where_experts_drop_what_is_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    grouped = clearhead.nn.experts.experts_grouped

    def dropping(x_ND: Tensor, chosen_NC: Tensor, *others: Any) -> Tensor:
        before_N = (chosen_NC[:, :1] == chosen_NC[:, :1].T).tril(diagonal=-1).sum(dim=1)
        return grouped(x_ND, chosen_NC, *others) * (before_N < 8)[:, None]

    monkeypatch.setattr(clearhead.nn.experts, "experts_grouped", dropping)
    assert verdict("mlp-alone") == "does not hold"
