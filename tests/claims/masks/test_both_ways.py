"""The claim that only the mask separates the families."""

from __future__ import annotations

import pytest

import clearhead.nn.attention
from clearhead.ops.masks import Causal, Everything, Mask
from tests.claims.quick import verdict


def test_holds() -> None:
    assert verdict("both-ways") == "holds"


@pytest.mark.parametrize("mask", [Causal(), Everything()])
def test_fails_where_all_have_one_mask(mask: Mask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clearhead.nn.attention, "mask_from", lambda config: mask)
    assert verdict("both-ways") == "does not hold"
