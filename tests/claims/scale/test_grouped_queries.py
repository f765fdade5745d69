"""Means of heads are better than new heads; pooled in another way they are not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from torch import Tensor

from clearhead.layer_state import KVState
from clearhead.model import kv_heads
from tests.claims.quick import verdict

Pool = Callable[[Tensor, int, int], Tensor]


def test_it_holds() -> None:
    assert verdict("grouped-queries") == "holds"


def test_means_of_numbers_that_do_not_belong_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven rows out of step, a mean is of other places in other heads."""
    pooled: Pool = kv_heads._pooled
    monkeypatch.setattr(kv_heads, "_pooled", lambda old, n, d: pooled(old.roll(7, 0), n, d))
    assert verdict("grouped-queries") == "does not hold"


def test_a_cache_that_does_not_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    grouped = KVState.append

    def written_out(self, k, v, positions):
        n_shared = 4 // k.shape[1]
        return grouped(self, k.repeat_interleave(n_shared, dim=1), v.repeat_interleave(n_shared, dim=1), positions)

    monkeypatch.setattr(KVState, "append", written_out)
    assert verdict("grouped-queries") == "does not hold"
