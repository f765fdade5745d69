"""Every way to multiply with the weights, against float64, and held to torch's `linear`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F

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
        (torch.float32, 20, False, "_transposed"),
        (torch.float32, 60, False, None),
        (torch.bfloat16, 1, False, "_one_row"),
        (torch.bfloat16, 2, False, None),
        (torch.bfloat16, 20, False, "_widened"),
        (torch.bfloat16, 8, True, "_transposed"),
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


def test_gradients_come_through_torchs_own():
    x, weight = torch.randn(3, 10, requires_grad=True), torch.randn(4, 10, requires_grad=True)
    bias = torch.randn(4, requires_grad=True)
    matmul.linear(x, weight, bias).square().sum().backward()
    ours = [t.grad.clone() for t in (x, weight, bias)]
    for t in (x, weight, bias):
        t.grad = None
    F.linear(x, weight, bias).square().sum().backward()
    assert all(torch.equal(a, t.grad) for a, t in zip(ours, (x, weight, bias), strict=True))


def test_no_rows():
    assert matmul.linear(torch.zeros(2, 0, 10), torch.zeros(4, 10)).shape == (2, 0, 4)
