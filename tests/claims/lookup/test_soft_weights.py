"""The claim of soft weights holds, and not where weights don't sum to one or are all or nothing."""

from __future__ import annotations

import pytest
import torch

from clearhead.claims.verdict import FAILS, HOLDS
from clearhead.ops import attention
from tests.claims.quick import measured, verdict


def all_or_nothing(scores_BHTS, sinks_H=None):
    return (scores_BHTS == scores_BHTS.amax(-1, keepdim=True)).to(scores_BHTS.dtype)


def each_for_itself(scores_BHTS, sinks_H=None):
    return torch.sigmoid(scores_BHTS)


def test_it_holds() -> None:
    assert verdict("soft-weights") == HOLDS


def test_float32_ends_where_its_least_number_does() -> None:
    """exp(-103.97) is half of 2 ** -149, and rounds to nothing."""
    values = measured("soft-weights").values
    assert values["gap of scores from which float32 gives zero"] == pytest.approx(103.97, abs=0.01)


@pytest.mark.parametrize("broken", [all_or_nothing, each_for_itself])
def test_other_weights_fail(monkeypatch, broken) -> None:
    monkeypatch.setattr("clearhead.ops.attention.normalise", broken)
    assert verdict("soft-weights") == FAILS


@pytest.mark.parametrize("broken", [lambda scores: -scores, torch.zeros_like])
def test_weights_of_other_scores_fail(monkeypatch, broken) -> None:
    score = attention.score
    monkeypatch.setattr(attention, "score", lambda q_BHTK, k_BGSK: broken(score(q_BHTK, k_BGSK)))
    assert verdict("soft-weights") == FAILS
