"""The claim of BERT's 15 %, and of 80, 10 and 10."""

from __future__ import annotations

from functools import partial

import pytest

from clearhead.claims.masks import hidden_words
from tests.claims.quick import verdict


def test_holds() -> None:
    assert verdict("hidden-words") == "holds"


@pytest.mark.parametrize("recipe", [{"masked": 1.0, "other": 0.0}, {"share": 0.16}, {"masked": 0.79}])
def test_fails_with_another_recipe(recipe: dict[str, float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden_words, "MaskingConfig", partial(hidden_words.MaskingConfig, **recipe))
    assert verdict("hidden-words") == "does not hold"
