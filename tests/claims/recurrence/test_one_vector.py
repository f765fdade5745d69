"""RNNenc falls with length when it is quick, and does not where it is given what it is said to lack."""

from __future__ import annotations

import pytest

from clearhead.claims.ingredients import translators
from clearhead.claims.recurrence import one_vector
from clearhead.claims.verdict import FAILS, HOLDS, judge
from clearhead.recurrent import rnn_search
from tests.claims.quick import measured, verdict


@pytest.mark.slow
def test_it_holds_and_is_drawn() -> None:
    pytest.importorskip("matplotlib", reason="an extra")
    found = measured("one-vector")
    assert judge(one_vector.CLAIM.marks, [found], quick=True) == HOLDS
    with one_vector.figures.style():
        assert one_vector.draw([found]).axes[0].get_xlabel() == "length of the sentence (words)"


@pytest.mark.slow
def test_not_with_a_vector_for_every_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """An RNNenc that looks back has no bottleneck."""
    monkeypatch.setitem(translators.MAKERS, "enc", rnn_search)
    assert verdict("one-vector") == FAILS
