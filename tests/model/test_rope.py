"""Another scaling of rotary positions on a config, and what it does not touch."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clearhead.config import (
    DynamicScaling,
    LinearScaling,
    Llama3Scaling,
    LongRopeScaling,
    RotaryConfig,
    SublayerConfig,
    TransformerConfig,
    YarnScaling,
)
from clearhead.errors import ClearheadError
from clearhead.model.rope import with_rope
from tests.model.small import small

YARN = YarnScaling(factor=4.0, trained_length=100)


def config_of(*bases: tuple[int | None, float]) -> TransformerConfig:
    """One layer a (window, base), made for 100 tokens."""
    config = small(windows=tuple(window for window, _ in bases)).config
    blocks = [
        replace(block, mixer=SublayerConfig(op=replace(block.mixer.op, positions=RotaryConfig(base=base))))
        for block, (_, base) in zip(config.stack.blocks, bases, strict=True)
    ]
    return replace(config, context=100, decoder=replace(config.decoder, blocks=tuple(blocks)))


def scalings(config: TransformerConfig) -> list[object]:
    return [block.mixer.op.positions.scaling for block in config.stack.blocks]


@pytest.mark.parametrize(
    ("bases", "expected"),
    [
        ([(None, 1e4), (None, 1e4)], [YARN, YARN]),
        ([(5, 1e4), (None, 1e6)], [None, YARN]),
        ([(5, 1e4), (None, 1e4)], [YARN, YARN]),
        ([(5, 1e4), (5, 1e4)], [YARN, YARN]),
    ],
    ids=["all_full", "a_base_for_windows", "one_base_for_both", "all_windows"],
)
def test_the_layers_it_concerns(bases, expected):
    config = config_of(*bases)
    assert scalings(with_rope(config, YARN)) == expected
    assert with_rope(with_rope(config, YARN), None).decoder == config.decoder


@pytest.mark.parametrize(
    ("scaling", "context"),
    [
        (LinearScaling(factor=2.0), 200),
        (YARN, 400),
        (Llama3Scaling(factor=8.0, low=1.0, high=4.0, trained_length=50), 400),
        (Llama3Scaling(factor=8.0, low=1.0, high=4.0, trained_length=5), 100),
        (LongRopeScaling(short=(1.0,) * 4, long=(2.0,) * 4, trained_length=100, factor=3.0), 300),
        # It counts from the trained length, so that is what a config must go on saying.
        (DynamicScaling(factor=4.0, trained_length=100), 100),
        (None, 100),
    ],
    ids=lambda x: type(x).__name__ if not isinstance(x, int) else None,
)
def test_the_context_follows(scaling, context):
    assert with_rope(config_of((None, 1e4)), scaling).context == context


def test_a_linear_factor_replaces_the_one_before():
    config = with_rope(config_of((None, 1e4)), LinearScaling(factor=2.0))
    assert with_rope(config, LinearScaling(factor=4.0)).context == 400


@pytest.mark.parametrize(
    ("positions", "named"), [("learned", "LearnedPositions"), ("alibi", "AlibiConfig"), ("sinusoidal", "Sinusoidal")]
)
def test_a_model_without_rotary_positions_is_refused(positions, named):
    with pytest.raises(ClearheadError, match=named):
        with_rope(small(positions).config, YARN)


def test_a_scaling_that_does_not_fit_is_refused():
    with pytest.raises(ClearheadError, match="more than 0"):
        with_rope(config_of((None, 1e4)), LinearScaling(factor=0.0))
    with pytest.raises(ClearheadError, match="one divisor for each of 4"):
        with_rope(config_of((None, 1e4)), LongRopeScaling(short=(1.0,), long=(1.0,), trained_length=9, factor=2.0))
