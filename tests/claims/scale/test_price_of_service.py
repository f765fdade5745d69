"""Prices and users are bytes and FLOPs; a cache that is not counted by its heads, or not kept, shows."""

from __future__ import annotations

import pytest

from clearhead.claims.scale import price_of_service
from clearhead.costs import service, state
from clearhead.state import State
from tests.claims.quick import verdict


def test_it_holds() -> None:
    assert verdict("price-of-service") == "holds"


def test_a_cache_of_every_query_head(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = state.Kept
    monkeypatch.setattr(state, "Kept", lambda **of: kept(**{**of, "per_token": of["multi_head"]}))
    assert verdict("price-of-service") == "does not hold"


def test_users_where_weights_take_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    users = service.users
    monkeypatch.setattr(
        service, "users", lambda counts, context, memory, width: users(counts, context, 2 * memory, width)
    )
    assert verdict("price-of-service") == "does not hold"


def test_a_prefix_that_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgotten(state: State) -> State:
        state.truncate(0)
        return state

    monkeypatch.setattr(price_of_service, "copy_state", forgotten)
    assert verdict("price-of-service") == "does not hold"
