"""The claim of retrieval holds, and not with vectors of an encoder that learnt nothing, or documents out of order."""

from __future__ import annotations

import pytest
import torch

from clearhead.checkpoints.load import load
from clearhead.claims.ingredients.shares import wilson
from clearhead.claims.lookup import retrieval
from clearhead.claims.verdict import FAILS, HOLDS
from clearhead.model.init import initialise
from tests.claims.quick import measured, verdict

pytestmark = pytest.mark.xdist_group("minilm")


def untrained(name: str):
    torch.manual_seed(0)
    model = load(name)
    initialise(model)
    return model


def test_it_holds() -> None:
    assert verdict("retrieval") == HOLDS


def test_questions_say_it_in_other_words() -> None:
    """Measured: 2 of 30 found by the words they share with their document."""
    share, _, _ = measured("retrieval").values["share by shared words alone"]
    assert share < 0.2


def test_without_training_it_fails(monkeypatch) -> None:
    monkeypatch.setattr(retrieval, "load", untrained)
    assert verdict("retrieval") == FAILS


def test_with_the_farthest_first_it_fails(monkeypatch) -> None:
    monkeypatch.setattr(retrieval, "SHARPNESS", -20.0)
    assert verdict("retrieval") == FAILS


def test_wilsons_interval() -> None:
    """As statsmodels' `proportion_confint(..., method="wilson")` gives it."""
    assert wilson(29, 30) == pytest.approx((29 / 30, 0.83330, 0.99409), abs=1e-5)
    assert wilson(0, 10) == pytest.approx((0, 0, 0.27753), abs=1e-5)
    assert wilson(10, 10) == pytest.approx((1, 0.72247, 1), abs=1e-5)
