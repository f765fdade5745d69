"""Tiles are exact and take memory along a line; one tile for all, or a sum that is not put right, shows."""

from __future__ import annotations

import pytest
import torch

from clearhead.claims.scale import exact_in_tiles
from clearhead.ops import attention_tiled
from tests.claims.quick import verdict


def test_it_holds() -> None:
    assert verdict("exact-in-tiles") == "holds"


def test_one_tile_is_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_tiled, "TILE", 2**14)
    assert verdict("exact-in-tiles") == "does not hold"


def test_sums_that_are_not_made_smaller_when_a_greater_score_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "exp", torch.ones_like)
    assert verdict("exact-in-tiles") == "does not hold"


def test_queries_that_stay_where_they_are_would_not_come_in_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The counts without the blocks: all is moved once, however large the fast memory."""
    monkeypatch.setattr(exact_in_tiles, "tiled", lambda n, s, heads, fast: 4 * n * heads.d_key)
    assert verdict("exact-in-tiles") == "does not hold"
