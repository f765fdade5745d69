"""Every way to multiply with the weights, against float64, and held to torch's `linear`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from torch.utils.flop_counter import FlopCounterMode

from clearhead.ops import matmul
from tests.oracles import TOLERANCE, error


@pytest.fixture(params=[1, 2])
def n_threads(request: pytest.FixtureRequest) -> Iterator[int]:
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(1)


@pytest.mark.parametrize("has_units", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("n_rows", [1, 2, 3, 4, 8, 9, 33])
@pytest.mark.parametrize("with_bias", [True, False])
def test_linear(monkeypatch, n_threads, has_units, dtype, n_rows, with_bias):
    """On processors with and without half-precision units; parts and slices end within the matrix."""
    monkeypatch.setattr(matmul, "multiplies", lambda dtype: has_units)
    monkeypatch.setattr(matmul, "SLICE", 1000)
    x = torch.randn(1, n_rows, 48).to(dtype)
    weight = (torch.randn(70, 48) / 7).to(dtype)
    bias = torch.randn(70).to(dtype) if with_bias else None
    y = matmul.linear(x, weight, bias)
    exact = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    assert y.dtype == dtype
    assert y.is_contiguous()
    # Sums are kept in float32 and rounded once or, with a bias, twice: a fifth of what is allowed to a whole model.
    assert error(y, exact) <= TOLERANCE[dtype] / (5 if dtype == torch.bfloat16 else 1)


@pytest.mark.parametrize(
    ("dtype", "n_rows", "has_units", "way"),
    [
        (torch.float32, 1, False, "_in_parts"),
        (torch.float32, 4, False, "_transposed"),
        (torch.float32, 60, False, None),
        (torch.bfloat16, 1, False, "_one_row"),
        (torch.bfloat16, 2, False, None),
        (torch.bfloat16, 20, False, "_widened"),
        (torch.bfloat16, 8, True, None),
        (torch.float16, 20, True, None),
        (torch.float64, 1, True, None),
    ],
)
def test_each_way_is_taken(monkeypatch, dtype, n_rows, has_units, way):
    """The test above covers a way only if it is the one that runs."""
    monkeypatch.setattr(matmul, "multiplies", lambda dtype: has_units)
    chosen = matmul._way(dtype, n_rows)
    assert (None if chosen is None else chosen.__name__) == way


def test_a_matrix_that_is_not_contiguous(n_threads):
    weight, x = torch.randn(48, 70).T, torch.randn(1, 48)
    assert error(matmul.linear(x, weight), x.double() @ weight.double().T) <= TOLERANCE[torch.float32]


def test_the_bias_is_rounded_once_however_the_rows_lie():
    """A part of wider rows, as some norms give it: in three dimensions torch rounds the product before the bias."""
    x = torch.randn(2, 20, 96).bfloat16()[..., :48]
    weight, bias = torch.randn(70, 48).bfloat16(), torch.randn(70).bfloat16()
    assert not x.is_contiguous()
    assert torch.equal(matmul.linear(x, weight, bias), matmul.linear(x.contiguous(), weight, bias))


@pytest.mark.parametrize("n_rows", [3, 12])
@pytest.mark.parametrize("wanted", ["x", "weight", "all"])
def test_gradients_are_those_of_torch(n_rows, wanted):
    """Of the product of few rows, which is torch's own, and of many; a sum spreads its gradient out in memory."""
    torch.manual_seed(0)
    leaves = torch.randn(2, n_rows, 10), torch.randn(4, 10), torch.randn(4)
    for t in {"x": leaves[:1], "weight": leaves[1:2], "all": leaves}[wanted]:
        t.requires_grad_()
    for reduce in (lambda y: y.sum(), lambda y: y.square().sum()):
        found = []
        for product in (matmul.linear, F.linear):
            reduce(product(*leaves)).backward()
            found.append([t.grad for t in leaves])
            for t in leaves:
                t.grad = None
        for ours, torchs in zip(*found, strict=True):
            assert (ours is None) == (torchs is None)
            assert ours is None or error(ours, torchs) <= TOLERANCE[torch.float32]


def test_gradients_of_gradients():
    x, weight = torch.randn(9, 10, requires_grad=True), torch.randn(4, 10, requires_grad=True)
    found = []
    for product in (matmul.linear, F.linear):
        (gradient,) = torch.autograd.grad(product(x, weight).pow(3).sum(), x, create_graph=True)
        found.append(torch.autograd.grad(gradient.square().sum(), (x, weight)))
    for ours, torchs in zip(*found, strict=True):
        assert error(ours, torchs) <= TOLERANCE[torch.float32]


def test_transforms_of_functions_and_autocast_take_torchs_own():
    x, weight = torch.randn(9, 10), torch.randn(4, 10)
    tangent = torch.func.jvp(lambda w: matmul.linear(x, w), (weight,), (torch.ones(4, 10),))[1]
    assert error(tangent, x.sum(-1, keepdim=True).expand(9, 4)) <= TOLERANCE[torch.float32]
    with torch.autocast("cpu", torch.bfloat16):
        assert matmul.linear(x, weight).dtype == torch.bfloat16


def test_torchs_counter_counts_every_product():
    x, weight = torch.randn(9, 10, requires_grad=True), torch.randn(4, 10, requires_grad=True)
    with FlopCounterMode(display=False) as counter:
        matmul.linear(x, weight).sum().backward()
    assert counter.get_total_flops() == 3 * 2 * 9 * 10 * 4
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        matmul.linear(x, weight)
    assert counter.get_total_flops() == 2 * 9 * 10 * 4


def test_no_rows():
    assert matmul.linear(torch.zeros(2, 0, 10), torch.zeros(4, 10)).shape == (2, 0, 4)
