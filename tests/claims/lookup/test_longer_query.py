"""The claim of longer queries holds, and not where only a query's direction counts."""

from __future__ import annotations

import torch.nn.functional as F

from clearhead.claims.lookup import longer_query
from clearhead.claims.verdict import FAILS, HOLDS
from clearhead.ops import attention
from tests.claims.quick import verdict


def test_it_holds() -> None:
    assert verdict("longer-query") == HOLDS


def test_with_cosines_it_fails(monkeypatch) -> None:
    score = attention.score
    monkeypatch.setattr(attention, "score", lambda q_BHTK, k_BGSK: score(F.normalize(q_BHTK, dim=-1), k_BGSK))
    assert verdict("longer-query") == FAILS


def test_where_an_edit_of_the_queries_does_nothing_it_fails(monkeypatch) -> None:
    monkeypatch.setattr(longer_query, "longer", lambda length: lambda q_BHTK: q_BHTK)
    assert verdict("longer-query") == FAILS
