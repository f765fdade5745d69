"""The claim that an encoder does not write well."""

from __future__ import annotations

import pytest

from clearhead.claims.masks import encoder_writes
from clearhead.claims.masks.hidden_words import TEXT
from clearhead.model.transformer import Transformer
from tests.claims.quick import verdict

pytestmark = pytest.mark.slow


def test_holds() -> None:
    assert verdict("encoder-writes") == "holds"


def test_fails_where_the_encoder_sees_what_is_yet_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = encoder_writes.asked

    def told(model: Transformer, before: list[int], after: list[int]) -> tuple[list[int], int]:
        ids = model.tokenizer.encode(TEXT, bos=False)
        n = len(before)
        at = next((i for i in range(len(ids) - n) if ids[i : i + n] == before), None)
        return asked(model, before, after if at is None else ids[at + n + 1 : at + 2 * n + 1])

    monkeypatch.setattr(encoder_writes, "asked", told)
    assert verdict("encoder-writes") == "does not hold"
