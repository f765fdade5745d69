"""Induction heads along the snapshots of clear-2l."""

from __future__ import annotations

import pytest
import torch

from clearhead.claims.heads.induction import head_scores
from tests.claims.no_positions import drop_positions
from tests.claims.quick import measured, verdict


def test_it_holds() -> None:
    assert verdict("induction") == "holds"


def test_not_without_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    drop_positions(monkeypatch)
    found = measured("induction").values
    assert found["previous-token score at the end"] < 0.2 and found["induction score at the end"] < 0.2  # type: ignore[operator]
    assert verdict("induction") == "does not hold"


def test_scores_of_patterns_made_by_hand() -> None:
    """a b c a b c: an induction head looks from the second a to b, and a previous-token head one back."""
    tokens_BT = torch.tensor([[1, 2, 3, 1, 2, 3]])
    induction_TS, previous_TS = torch.eye(6), torch.eye(6).roll(-1, 1)
    for place in (3, 4, 5):
        induction_TS[place] = torch.eye(6)[place - 2]
    previous_TS[0] = torch.eye(6)[0]
    previous_TS[1:] = torch.eye(6)[:-1]
    previous_LH, induction_LH = head_scores({"0": torch.stack([induction_TS, previous_TS])[None]}, tokens_BT)
    assert previous_LH.tolist() == [[0.0, 1.0]]
    assert induction_LH.tolist() == [[1.0, 0.0]]
