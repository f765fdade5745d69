"""What fits and what it costs, on the model of `tests.costs.by_hand` (1,520 bytes of weights, 16 of state a token)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clearhead.costs import counts
from clearhead.costs.devices import device
from clearhead.costs.service import Ask, Service
from clearhead.costs.serving import (
    devices_needed,
    longest,
    made_for,
    outweighs,
    price_per_million,
    state_at,
    users,
    weight_bytes,
)
from clearhead.errors import UsageError
from tests.costs.by_hand import SLOW, config, published, tiny


def test_users() -> None:
    """2,000 - 1,520 bytes have room for 6 times 5 tokens of 16 bytes."""
    assert weight_bytes(tiny(), 2) == 1520
    assert users(tiny(), 5, 2000, 2) == 6
    assert users(tiny(), 5, 1000, 2) == 0
    assert users(published("bert-base"), 512, 2**30, 2) is None


def test_the_longest_text() -> None:
    """480 bytes are 30 tokens of one text, and 15 of two; the model was made for 8."""
    assert longest(tiny(), 1, 2000, 2) == 30
    assert longest(tiny(), 2, 2000, 2) == 15
    assert longest(tiny(), 1, 1000, 2) == 0
    assert made_for(tiny()) == 8


def test_where_the_state_outweighs_the_weights() -> None:
    """1,520 bytes are 95 tokens; of 10 texts, 9.5 tokens."""
    assert outweighs(tiny(), 1, 2) == 95
    assert outweighs(tiny(), 10, 2) == 10


def test_beyond_what_it_was_made_for_the_state_grows_on() -> None:
    assert state_at(tiny(), 1, 8, 2) == 8 * 16
    assert state_at(tiny(), 3, 100, 2) == 3 * 100 * 16
    whisper = published("whisper-tiny")
    assert state_at(whisper, 1, 449, 2) - state_at(whisper, 1, 448, 2) == whisper.state(1, 448, 2).per_token


def test_a_scan_keeps_the_same_however_long_the_text() -> None:
    mamba = counts(config("mamba"))
    assert longest(mamba, 1, 2 * weight_bytes(mamba, 2), 2) is None
    assert outweighs(mamba, 1, 2) is None
    assert made_for(mamba) is None


def test_prices() -> None:
    """4 tokens in 2 s are half a second each; 1e6 of them are 138.9 hours, at $3.60 an hour $500."""
    assert price_per_million(2.0, 4, 3.6) == pytest.approx(500)
    assert price_per_million(2.0, 4, 0) == 0
    with pytest.raises(UsageError, match="0 or more"):
        price_per_million(2.0, 4, -1)


def test_devices_needed() -> None:
    assert [devices_needed(n, 10) for n in (0, 1, 10, 11, 30)] == [1, 1, 1, 2, 3]


def test_a_service() -> None:
    """Reading 4 tokens takes 1.424 s, and the last of them alone 1360 + 64 bytes too: little is saved where the weights
    are what takes time. Writing takes (1360 + 64) / 500 or so: here at the pace of products, 2.72 + 0.064 + 0.25 s.
    """
    service = Service(tiny(), Ask(context=4, kept=4, price_per_hour=3.6), SLOW)
    assert service.reading.seconds == 1.424
    assert service.reading_rest.load.flops == 1440
    assert service.users == (2000 - 1520) // 64 == 7
    assert service.fits
    assert service.writing(1).seconds == pytest.approx(3.034)
    assert service.writing(1).tokens_per_second == pytest.approx(1 / 3.034)
    assert service.price_in() == pytest.approx(1.424 / 4 * 1e6 * 3.6 / 3600)
    assert service.price_out(1) == pytest.approx(3.034e6 * 3.6 / 3600)
    # Bounds alone, where nothing was measured, or for another number of texts.
    assert service.writing(2).seconds == (1360 + 128) / 1000
    bare = replace(service, device=replace(SLOW, reached=None))
    assert bare.writing(1).seconds == 1.424


def test_what_a_kept_prompt_saves() -> None:
    """Where reading waits for arithmetic: of 4 tokens, 5088 - 1440 operations at 1,000 a second."""
    quick = replace(SLOW, bandwidth=1e6, peaks={"bfloat16": 1000.0}, reached=None)
    service = Service(tiny(), Ask(context=4, kept=4, price_per_hour=3600.0), quick)
    assert service.reading.seconds - service.reading_rest.seconds == pytest.approx(3.648)
    assert service.price_saved() == pytest.approx(3.648)
    none = Service(tiny(), Ask(context=4, kept=1, price_per_hour=3600.0), quick)
    assert none.reading_rest.load.flops > service.reading_rest.load.flops


def test_a_model_of_70_billion_on_two_accelerators() -> None:
    """S64, by hand: 69,503,033,344 weights are read for a token (all but the table of 128,256 x 8,192), of 2 bytes, and
    8,192 tokens of 327,680 bytes of state: 141,690,421,248 bytes at 6.7e12 a second are 21.15 ms.
    160 GiB hold 141,107,412,992 bytes of weights and 11 such texts.
    """
    service = Service(published("llama3-70b"), Ask(context=8192, price_per_hour=4.0), device("h100-sxm").times(2))
    step = service.writing(1)
    assert step.bound.load.bytes == 141_690_421_248
    assert step.seconds == pytest.approx(0.0211478, rel=1e-5)
    assert step.bound.limit == "memory" and service.reading.limit == "arithmetic"
    assert service.users == 11
    assert service.price_out(11) < service.price_out(1) / 9
    assert service.price_in() < service.price_out(11)


def test_a_model_that_does_not_write_has_room_for_any_number() -> None:
    service = Service(published("bert-base"), Ask(context=512, dtype="float32"), device("l4"))
    assert not service.writes and service.users is None
