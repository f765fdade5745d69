"""Packed copies of weights: the same numbers, never of a weight as it was, and let go of at the end."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn

from clearhead.nn import packing
from clearhead.nn.linear import Linear
from clearhead.ops import matmul
from tests.oracles import TOLERANCE, error

pytestmark = pytest.mark.skipif(
    not (matmul.has_onednn() and matmul.multiplies(torch.bfloat16)), reason="this processor has no units for bfloat16"
)


@pytest.fixture
def layer() -> Linear:
    torch.manual_seed(0)
    return Linear(160, 128).to(torch.bfloat16)


@torch.no_grad()
@pytest.mark.parametrize("n_rows", [1, 3, 8, 33])
def test_the_product_is_that_of_the_weights(layer: Linear, n_rows: int) -> None:
    x = torch.randn(2, n_rows, 160).to(torch.bfloat16) if n_rows < 30 else torch.randn(n_rows, 160).to(torch.bfloat16)
    with packing.packing():
        y = layer(x)
        assert len(packing._packing.copies) == (0 if n_rows == 33 else 1)
    exact = x.double() @ layer.weight.double().T + layer.bias.double()
    assert y.shape == exact.shape and error(y, exact) <= TOLERANCE[torch.bfloat16] / 5


@torch.no_grad()
def test_a_weight_that_is_written_to_is_packed_anew(layer: Linear) -> None:
    x = torch.randn(1, 160).to(torch.bfloat16)
    with packing.packing():
        before = layer(x)
        layer.weight.mul_(2)
        assert error(layer(x), x.double() @ layer.weight.double().T + layer.bias.double()) <= TOLERANCE[torch.bfloat16]
        layer.weight.data = layer.weight.data.flip(0).contiguous()
        assert error(layer(x), x.double() @ layer.weight.double().T + layer.bias.double()) <= TOLERANCE[torch.bfloat16]
        assert not torch.equal(before, layer(x))


@torch.no_grad()
def test_copies_live_as_long_as_the_last_text_and_the_weights(layer: Linear) -> None:
    x = torch.randn(1, 160).to(torch.bfloat16)
    other = Linear(160, 128).to(torch.bfloat16)
    with packing.packing():
        with packing.packing():
            layer(x), other(x)
        assert len(packing._packing.copies) == 2
        del other
        gc.collect()
        assert len(packing._packing.copies) == 1
    assert len(packing._packing.copies) == 0
    layer(x)
    assert len(packing._packing.copies) == 0


def test_nothing_is_packed_for_gradients_parts_or_without_room(layer: Linear, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(1, 160).to(torch.bfloat16)
    with packing.packing():
        layer(x).sum().backward()
        assert layer.weight.grad is not None
        with torch.no_grad():
            packing.linear(x, nn.Parameter(torch.randn(8, 160).to(torch.bfloat16)))  # too small to matter
            packing.linear(x, layer.weight[:120])  # not a weight of a model's, but a part of one
            monkeypatch.setattr(packing, "_free", lambda: 1000.0)
            layer(x)
        assert len(packing._packing.copies) == 0


def test_another_thread_reads_its_weights_as_ever() -> None:
    """What one thread writes changes no bit of another's, and a text may be asked for by several threads in turn."""
    layer, x = Linear(256, 256, bias=False, dtype=torch.bfloat16), torch.randn(1, 256, dtype=torch.bfloat16)

    def steps() -> Iterator[bool]:
        while True:
            yield packing.is_open()

    texts = packing.packed(steps())
    with torch.inference_mode():
        assert next(texts) and not packing.is_open()
        with ThreadPoolExecutor(1) as other:
            assert other.submit(next, texts).result()
            with packing.packing():
                packing.linear(x, layer.weight)
                assert not other.submit(packing.is_open).result()
        assert packing._packing.copies
    texts.close()
    assert not packing._packing.copies
