"""The claim that only attention moves information holds, and not of what else a block does."""

from __future__ import annotations

import pytest

from clearhead.claims.scaled import only_attention
from clearhead.claims.verdict import FAILS, HOLDS
from tests.claims.quick import measured, verdict


def test_it_holds() -> None:
    assert verdict("only-attention") == HOLDS


def test_causal_models_look_back_only() -> None:
    assert measured("only-attention").values["change before it, causal, with attention"] < 1e-12


@pytest.mark.parametrize("elsewhere", ["layers.*.ffn.out", "layers.0.mixer.out"])
def test_where_attention_is_not_what_is_zeroed_it_fails(monkeypatch, elsewhere: str) -> None:
    monkeypatch.setattr(only_attention, "ATTENTION", elsewhere)
    assert verdict("only-attention") == FAILS


def test_where_attention_moves_nothing_it_fails(monkeypatch) -> None:
    edit, zero = only_attention.edit, only_attention.zero
    monkeypatch.setattr(
        only_attention, "edit", lambda model, tokens, edits: edit(model, tokens, {"layers.*.mixer.out": zero})
    )
    assert verdict("only-attention") == FAILS
