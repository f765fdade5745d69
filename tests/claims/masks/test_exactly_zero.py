"""The claim that what is hidden has a weight of exactly zero."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

import pytest

from clearhead.claims.masks import exactly_zero
from clearhead.ops import attention, attention_tiled
from clearhead.ops.masks import BoundMask, Mask, Positions
from tests.claims.quick import verdict


def test_holds() -> None:
    assert verdict("exactly-zero") == "holds"


@pytest.mark.parametrize("backend", [attention, attention_tiled])
def test_fails_where_hidden_scores_are_merely_low(backend: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "MINUS_INFINITY", -1e4)
    assert verdict("exactly-zero") == "does not hold"


def test_fails_where_the_mask_is_bound_at_the_top_left(monkeypatch: pytest.MonkeyPatch) -> None:
    bind = exactly_zero.bind

    def top_left(mask: Mask, n_queries: int, n_keys: int) -> BoundMask:
        return replace(bind(mask, n_queries, n_keys), queries=Positions(span=(0, n_queries)))

    monkeypatch.setattr(exactly_zero, "bind", top_left)
    assert verdict("exactly-zero") == "does not hold"
