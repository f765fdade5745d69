"""Without the previous-token head there is no induction head."""

from __future__ import annotations

import pytest

from clearhead.claims.heads import heads_compose
from clearhead.lens.edit import Function
from tests.claims.no_positions import drop_positions
from tests.claims.quick import verdict


def test_it_holds() -> None:
    assert verdict("heads-compose") == "holds"


def test_not_where_another_token_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    blind = heads_compose.blind

    def farther(offset: int) -> Function:
        return blind(offset + 2)

    monkeypatch.setattr(heads_compose, "blind", farther)
    assert verdict("heads-compose") == "does not hold"


def test_not_without_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    drop_positions(monkeypatch)
    assert verdict("heads-compose") == "does not hold"
