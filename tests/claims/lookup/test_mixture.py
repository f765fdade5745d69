"""The claim of mixtures holds, and not of a hard lookup."""

from __future__ import annotations

import torch.nn.functional as F

from clearhead.claims.verdict import FAILS, HOLDS
from tests.claims.quick import measured, verdict


def hard(scores_BHTS, sinks_H=None):
    return F.one_hot(scores_BHTS.argmax(-1), scores_BHTS.shape[-1]).to(scores_BHTS.dtype)


def test_it_holds() -> None:
    assert verdict("mixture") == HOLDS


def test_of_a_hard_lookup_it_fails(monkeypatch) -> None:
    monkeypatch.setattr("clearhead.ops.attention.normalise", hard)
    assert verdict("mixture") == FAILS
    assert measured("mixture").values["share of answers between"] == 0
