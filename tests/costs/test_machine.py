"""What is measured of this machine is of the size that machines have; nothing here is about how fast it is."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from clearhead.config import TransformerConfig
from clearhead.costs import counts, machine
from clearhead.costs.machine import matmul_peak, product_bandwidth, read_bandwidth, this_machine
from clearhead.costs.overhead import narrow_model, step_overhead
from clearhead.costs.source import read_config
from clearhead.families import FAMILIES
from tests.costs.by_hand import published, tiny


def test_the_peak_is_measured_without_a_random_number() -> None:
    before = torch.get_rng_state()
    assert matmul_peak(size=64, repeats=2) > 1e6
    assert torch.equal(torch.get_rng_state(), before)


def test_rates_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,096 bytes in 4 s by the median; 2 x 8^3 operations in 2 s at best."""
    monkeypatch.setattr(machine, "seconds_of", lambda run, repeats: [4.0, 2.0, 5.0])
    assert read_bandwidth(4096) == 1024.0
    assert matmul_peak(size=8) == 2 * 8**3 / 2


def test_the_bandwidth_of_products_is_that_of_a_models_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices of 100 and of 50 rows of 8 numbers of 4 bytes: as many of each as make 6,400 bytes take 2 s, so each
    byte takes 2 / 6400 s, whatever the mix.
    """
    monkeypatch.setattr(machine, "BEYOND_CACHE", 6400)
    monkeypatch.setattr(machine, "seconds_of", lambda run, repeats: [2.0])
    assert product_bandwidth({(100, 8): 3, (50, 8): 1}, torch.float32, 2) == pytest.approx(3200)


def test_all_that_is_measured_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "BEYOND_CACHE", 2**16)
    monkeypatch.setattr(machine, "SWEPT", 2**16)
    found = this_machine("float32", tiny(), rows=2)
    assert found.key == "here" and found.memory > 2**28
    assert 1e6 < found.bandwidth < 1e13 and 1e6 < found.peak("float32") < 1e15
    assert found.reached is not None and 1e4 < found.reached < 1e13
    assert 1e-6 < found.overhead < 1
    assert this_machine("float32", published("vit-b-16"), rows=1).reached is None


@pytest.mark.parametrize("family", FAMILIES)
def test_a_narrow_model_has_the_same_operations(family: str) -> None:
    """As many layers of the same kinds, with as many heads and experts, that can write."""
    config = read_config(family).config
    if not isinstance(config, TransformerConfig) or config.decoder is None:
        return
    narrow = narrow_model(config)
    assert narrow.decoder is not None and len(narrow.decoder.blocks) == len(config.decoder.blocks)
    for ours, theirs in zip(narrow.decoder.blocks, config.decoder.blocks, strict=True):
        assert type(ours.mixer.op) is type(theirs.mixer.op)
        assert getattr(ours.mixer.op, "n_heads", 0) == getattr(theirs.mixer.op, "n_heads", 0)
        assert getattr(ours.ffn and ours.ffn.op, "n_experts", 0) == getattr(
            theirs.ffn and theirs.ffn.op, "n_experts", 0
        )
        assert ours.parallel == theirs.parallel
    small = replace(narrow, decoder=replace(narrow.decoder, blocks=narrow.decoder.blocks[:2], share=None))
    before = torch.get_rng_state()
    assert 0 < step_overhead(small, torch.float32, 2) < 5
    assert torch.equal(torch.get_rng_state(), before)
    assert counts(narrow).parameters.total < counts(config).parameters.total / 5
