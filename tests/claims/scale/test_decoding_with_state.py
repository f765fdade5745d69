"""With a state: the same tokens for less. One that forgets, or that does not save, shows."""

from __future__ import annotations

import pytest

from clearhead.claims.scale import decoding_with_state
from clearhead.layer_state import KVState
from tests.claims.quick import verdict


def test_it_holds() -> None:
    assert verdict("decoding-with-state") == "holds"


def test_a_state_that_forgets_the_oldest_token(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = KVState.append

    def forgets(self, k, v, positions):
        k, v, keys = whole(self, k, v, positions)
        n = max(0, k.shape[2] - 8)
        return k[:, :, n:], v[:, :, n:], keys.part(n, len(keys))

    monkeypatch.setattr(KVState, "append", forgets)
    assert verdict("decoding-with-state") == "does not hold"


def test_reading_all_again_saves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    write = decoding_with_state.writer
    monkeypatch.setattr(decoding_with_state, "writer", lambda model, n_new, with_state: write(model, n_new, False))
    assert verdict("decoding-with-state") == "does not hold"
