"""Longer texts than were trained on."""

from __future__ import annotations

import pytest

from clearhead.claims.positions import longer_context
from clearhead.claims.running import Measuring
from clearhead.config import RotaryConfig, Scaling, TransformerConfig
from clearhead.model.transformer import Transformer
from clearhead.nn.rotary import frequencies
from tests.claims.quick import verdict


@pytest.fixture(scope="module")
def model() -> Transformer:
    """What a quick run trains, once."""
    return longer_context.trained(Measuring(seed=0, quick=True))


@pytest.fixture
def trained(model: Transformer, monkeypatch: pytest.MonkeyPatch) -> None:
    def train(run: Measuring) -> Transformer:
        return model

    monkeypatch.setattr(longer_context, "trained", train)


@pytest.mark.slow
def test_it_holds(trained: None) -> None:
    assert verdict("longer-context") == "holds"


@pytest.mark.slow
def test_not_where_frequencies_stay(trained: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def as_it_was(config: TransformerConfig, scaling: Scaling | None) -> TransformerConfig:
        return config

    monkeypatch.setattr(longer_context, "with_rope", as_it_was)
    assert verdict("longer-context") == "does not hold"


def test_ntk_is_a_larger_base() -> None:
    """base x s^(d / (d - 2)), at a text of s times the trained length."""
    ntk = RotaryConfig(scaling=longer_context.scaling("NTK", 4.0, 64))
    larger = RotaryConfig(base=10_000.0 * 4 ** (32 / 30))
    assert frequencies(ntk, 32, 256)[0].allclose(frequencies(larger, 32, 256)[0], rtol=1e-5)
