"""RNNsearch holds and is aligned when it is quick, and is not where its attention looks everywhere alike."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from clearhead.claims.verdict import FAILS, HOLDS
from clearhead.nn import recurrent
from tests.claims.quick import verdict


@pytest.mark.slow
def test_it_holds() -> None:
    assert verdict("looking-back") == HOLDS


@pytest.mark.slow
def test_not_where_it_looks_everywhere_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores of nought: the mean of the source is one vector again."""

    def alike(query_BA: Tensor, keys_BSA: Tensor, v_A: Tensor) -> Tensor:
        return torch.zeros_like(keys_BSA[..., 0]) * v_A.sum()

    monkeypatch.setattr(recurrent, "additive_scores", alike)
    assert verdict("looking-back") == FAILS
