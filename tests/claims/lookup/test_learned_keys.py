"""The claim of learned keys holds, and not where the lookup is hard, so that no gradient comes through."""

from __future__ import annotations

import torch.nn.functional as F

from clearhead.claims.verdict import FAILS, HOLDS
from tests.claims.quick import measured, verdict


def hard(scores_BHTS, sinks_H=None):
    return F.one_hot(scores_BHTS.argmax(-1), scores_BHTS.shape[-1]) + 0 * scores_BHTS


def test_it_holds() -> None:
    assert verdict("learned-keys") == HOLDS


def test_the_same_seed_gives_the_same_numbers() -> None:
    assert measured("learned-keys", seed=1).values == measured("learned-keys", seed=1).values


def test_of_a_hard_lookup_it_fails(monkeypatch) -> None:
    monkeypatch.setattr("clearhead.ops.attention.normalise", hard)
    assert verdict("learned-keys") == FAILS
    values = measured("learned-keys").values
    assert values["angle of a query and its key, after"] == values["angle of a query and its key, before"]
