"""Heads that can be cut off."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from torch import Tensor

from clearhead.claims.heads import pruned_heads
from clearhead.claims.heads.pruned_heads import pruning_curve
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


def test_not_where_nothing_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*args: Any, **options: Any) -> Any:
        found = pruning_curve(*args, **options)
        return replace(found, values=found.values[:, :1].expand_as(found.values))

    monkeypatch.setattr(pruned_heads, "pruning_curve", none)
    assert verdict("pruned-heads") == "does not hold"
