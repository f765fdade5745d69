"""The claim of heads that look at what is relevant: a quick run finds subjects in clear-gpt, and none in what it was
before training. Gemma's brackets are a full run's.
"""

from __future__ import annotations

import torch

from clearhead.checkpoints.load import load
from clearhead.claims.lookup import bracket_heads
from clearhead.claims.verdict import FAILS, HOLDS
from clearhead.lens.heads.templates import sentence
from clearhead.model.init import initialise
from tests.claims.quick import measured, verdict


def untrained(name: str):
    torch.manual_seed(0)
    model = load(name)
    initialise(model)
    return model


def test_it_holds() -> None:
    assert verdict("bracket-heads") == HOLDS


def test_clear_gpt_has_no_bracket_heads() -> None:
    """Measured: 0.08 of all attention in code and 0.00 in sentences, where a role begins at 0.15."""
    values = measured("bracket-heads").values
    assert values["bracket in code, clear-gpt: effect"] < 0.15
    assert values["bracket, clear-gpt: effect"] < 0.15


def test_its_tokenizer_leaves_brackets_by_themselves() -> None:
    tokenizer = load("clear-gpt").tokenizer
    written = [sentence(tokenizer, line) for line in bracket_heads.CODE]
    assert None not in written
    before = [one.target < one.rival for one in written if one is not None]
    assert sum(before) == len(before) / 2


def test_without_training_it_fails(monkeypatch) -> None:
    monkeypatch.setattr(bracket_heads, "load", untrained)
    assert verdict("bracket-heads") == FAILS
