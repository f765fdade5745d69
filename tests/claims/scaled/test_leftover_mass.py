"""The claim of leftover mass holds in a quick run, and not of an untrained model or where small weights are cut off."""

from __future__ import annotations

import torch

from clearhead.checkpoints.load import load
from clearhead.claims.ingredients.sentences import SENTENCES
from clearhead.claims.scaled import leftover_mass
from clearhead.claims.verdict import FAILS, HOLDS
from clearhead.lens import look
from clearhead.model.init import initialise
from tests.claims.quick import measured, verdict


def untrained(name: str):
    torch.manual_seed(0)
    model = load(name)
    initialise(model)
    return model


def cut_off(model, ids, *names):
    return {
        name: (value * (value > 1e-3) if "pattern" in name else value)
        for name, value in look(model, ids, *names).items()
    }


def test_it_holds() -> None:
    assert verdict("leftover-mass") == HOLDS
    values = measured("leftover-mass").values
    kinds = [values[f"weight on {where}"] for where in leftover_mass.WHERE]
    assert abs(sum(kinds) - 1) < 1e-6


def test_there_are_fifty_sentences() -> None:
    assert len(set(SENTENCES)) == 50


def test_without_training_it_fails(monkeypatch) -> None:
    monkeypatch.setattr(leftover_mass, "load", untrained)
    assert verdict("leftover-mass") == FAILS


def test_where_small_weights_are_cut_off_it_fails(monkeypatch) -> None:
    monkeypatch.setattr(leftover_mass, "look", cut_off)
    assert verdict("leftover-mass") == FAILS
