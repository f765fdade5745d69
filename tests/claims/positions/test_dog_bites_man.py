"""Two sentences of the same words."""

from __future__ import annotations

import pytest

from clearhead.claims.positions import dog_bites_man
from clearhead.config import BlockConfig
from tests.claims.no_positions import drop_positions
from tests.claims.quick import verdict


def test_it_holds() -> None:
    assert verdict("dog-bites-man") == "holds"


def test_not_where_positions_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    def as_it_was(block: BlockConfig) -> BlockConfig:
        return block

    monkeypatch.setattr(dog_bites_man, "_bare", as_it_was)
    assert verdict("dog-bites-man") == "does not hold"


def test_not_where_positions_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    drop_positions(monkeypatch)
    assert verdict("dog-bites-man") == "does not hold"
