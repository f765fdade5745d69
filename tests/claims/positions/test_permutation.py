"""What permuting the input does."""

from __future__ import annotations

import pytest

from clearhead.config import MaskConfig
from clearhead.nn import attention
from clearhead.ops.masks import Causal, Mask
from tests.claims.no_positions import drop_positions
from tests.claims.quick import verdict


def test_it_holds() -> None:
    assert verdict("permutation") == "holds"


def test_not_behind_a_causal_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    def causal(config: MaskConfig) -> Mask:
        return Causal()

    monkeypatch.setattr(attention, "mask_from", causal)
    assert verdict("permutation") == "does not hold"


def test_not_where_positions_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    drop_positions(monkeypatch)
    assert verdict("permutation") == "does not hold"
