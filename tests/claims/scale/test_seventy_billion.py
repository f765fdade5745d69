"""What Llama 3 70B keeps; a cache with a head for each query head, or with wide numbers, shows."""

from __future__ import annotations

import pytest
import torch

from clearhead.layer_state import KVState
from tests.claims.quick import measured, verdict


def test_it_holds() -> None:
    assert verdict("seventy-billion") == "holds"
    assert measured("seventy-billion").values["key-value heads"] == 8


def test_keys_written_out_for_every_query_head(monkeypatch: pytest.MonkeyPatch) -> None:
    grouped = KVState.append

    def written_out(self, k, v, positions):
        n_shared = 64 // k.shape[1]
        return grouped(self, k.repeat_interleave(n_shared, dim=1), v.repeat_interleave(n_shared, dim=1), positions)

    monkeypatch.setattr(KVState, "append", written_out)
    assert measured("seventy-billion").values["times as much without grouping"] == 1
    assert verdict("seventy-billion") == "does not hold"


def test_a_cache_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.nn.Module, "bfloat16", lambda self: self)
    assert measured("seventy-billion").values["bytes a token, as kept"] == 2 * 327_680
    assert verdict("seventy-billion") == "does not hold"
