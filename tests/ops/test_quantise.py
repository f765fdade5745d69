"""Weights made into blocks lose no more than their bits must, and the right ones stay whole."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, quants

from clearhead.errors import ClearheadError
from clearhead.ops.blocks import unpack
from clearhead.ops.quantise import MAKE, quantise
from clearhead.ops.quantised import QuantisedTensor

LOST = {"Q8_0": 0.0055, "Q4_0": 0.085, "Q4_K": 0.076}
"""Root mean square of the error over that of normal weights; measured 0.0053, 0.084 and 0.075."""


def relative(kind: str, weight: torch.Tensor) -> float:
    back = unpack(quantise(weight, kind), kind)
    return float((back - weight).square().mean().sqrt() / weight.square().mean().sqrt())


@pytest.mark.parametrize("kind", MAKE)
def test_normal_weights_lose_little(kind: str) -> None:
    weight = torch.randn(64, 1024, generator=torch.Generator().manual_seed(0)) * 0.02
    assert relative(kind, weight) <= LOST[kind]


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_no_more_is_lost_than_by_the_gguf_package(kind: str) -> None:
    weight = torch.randn(64, 256, generator=torch.Generator().manual_seed(1))
    number = GGMLQuantizationType[kind]
    theirs = quants.dequantize(quants.quantize(weight.numpy(), number), number)
    ours = unpack(quantise(weight, kind), kind).numpy()
    assert np.square(ours - weight.numpy()).mean() <= np.square(theirs - weight.numpy()).mean() * 1.001


@pytest.mark.parametrize("kind", MAKE)
def test_what_can_be_kept_is_kept(kind: str) -> None:
    """Zeros stay zeros, and weights that are blocks' own numbers come back."""
    assert torch.equal(unpack(quantise(torch.zeros(2, 256), kind), kind), torch.zeros(2, 256))
    steps = torch.arange(-8.0, 8).repeat(32).view(2, 256)
    assert (unpack(quantise(steps, kind), kind) - steps).abs().max() <= (0.04 if kind == "Q8_0" else 0.01)


@pytest.mark.parametrize("kind", MAKE)
def test_the_gguf_package_reads_the_blocks_alike(kind: str) -> None:
    raw = quantise(torch.randn(8, 512), kind)
    theirs = quants.dequantize(raw.numpy(), gguf.GGMLQuantizationType[kind])
    assert np.array_equal(theirs, unpack(raw, kind).numpy())


@pytest.mark.parametrize("kind", MAKE)
def test_blocks_of_one_number_and_of_outliers(kind: str) -> None:
    """A block that is one number keeps it; one large weight does not make the others vanish altogether."""
    same = torch.full((1, 256), -0.7)
    assert (unpack(quantise(same, kind), kind) - same).abs().max() <= 0.01
    weight = torch.randn(4, 256)
    weight[:, 7] = 30.0
    back = unpack(quantise(weight, kind), kind)
    assert back[:, 7].sub(30).abs().max() <= 0.4
    assert relative(kind, weight) <= 0.2


def test_rows_that_are_no_whole_blocks_are_refused() -> None:
    with pytest.raises(ClearheadError, match="rows of 352 weights are not whole blocks of Q4_K"):
        quantise(torch.randn(8, 352), "Q4_K")
    with pytest.raises(ClearheadError, match="rows of 100 bytes are not whole blocks of Q4_0"):
        QuantisedTensor(torch.zeros(3, 100, dtype=torch.uint8), "Q4_0")
