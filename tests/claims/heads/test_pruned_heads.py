"""Heads that can be cut off."""

from __future__ import annotations

from typing import Any

import pytest
from torch import Tensor

from clearhead.lens.pruning import prune
from clearhead.lens.pruning.importance import importance
from tests.claims.quick import verdict


def test_it_holds() -> None:
    assert verdict("pruned-heads") == "holds"


def test_not_where_the_best_heads_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    def upside_down(*args: Any, **options: Any) -> list[Tensor]:
        return [-scores_H for scores_H in importance(*args, **options)]

    monkeypatch.setattr(prune, "importance", upside_down)
    assert verdict("pruned-heads") == "does not hold"
