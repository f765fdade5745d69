"""One step in attention, as many as the distance in a recurrent network; a window that does not reach shows."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clearhead.claims.recurrence import path_length_one
from clearhead.config import MaskConfig
from tests.claims.quick import measured, verdict


def test_it_holds() -> None:
    assert verdict("path-length-one") == "holds"
    assert measured("path-length-one").series["paths"] == {"attention": [1, 1, 1], "simple RNN": [1, 10, 50]}


def test_a_window_that_does_not_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    near = replace(path_length_one.MIXER, mask=MaskConfig(window=20))
    monkeypatch.setattr(path_length_one, "MIXER", near)
    assert verdict("path-length-one") == "does not hold"


def test_attention_in_the_place_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(path_length_one, "network", lambda cell, seed: path_length_one.attention_layer(seed))
    monkeypatch.setitem(path_length_one.MADE, "simple RNN", path_length_one.MADE["attention"])
    assert verdict("path-length-one") == "does not hold"
