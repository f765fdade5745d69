"""The claim that Pre-LN needs no warm-up."""

from __future__ import annotations

from typing import Any

import pytest

from clearhead.claims.block import warm_up
from clearhead.claims.ingredients.norm_placement import decoder_with_norms
from tests.claims.quick import verdict

pytestmark = pytest.mark.slow


def test_holds() -> None:
    assert verdict("warm-up") == "holds"


def test_fails_where_norms_stand_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """With norms after the additions in both, both are stuck."""

    def misplaced(placement: Any, *depth: int, **sizes: int) -> Any:
        return decoder_with_norms("post", *depth, **sizes)

    monkeypatch.setattr(warm_up, "decoder_with_norms", misplaced)
    assert verdict("warm-up") == "does not hold"
