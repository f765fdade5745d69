"""Every way to multiply with the weights, against float64, and held to torch's `linear`."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from clearhead.ops import matmul
from tests.oracles import TOLERANCE, error


@pytest.mark.parametrize("has_units", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("n_rows", [1, 2, 3, 4, 8, 9, 33])
@pytest.mark.parametrize("with_bias", [True, False])
def test_linear(monkeypatch, has_units, dtype, n_rows, with_bias):
    """On processors with and without half-precision units; the slices end within the matrix."""
    monkeypatch.setattr(matmul, "_multiplies", lambda dtype: has_units)
    monkeypatch.setattr(matmul, "SLICE", 1000)
    x = torch.randn(1, n_rows, 48).to(dtype)
    weight = (torch.randn(70, 48) / 7).to(dtype)
    bias = torch.randn(70).to(dtype) if with_bias else None
    y = matmul.linear(x, weight, bias)
    exact = x.double() @ weight.double().T + (0 if bias is None else bias.double())
    assert y.dtype == dtype
    assert y.is_contiguous()
    # One rounding at the end, not one a term: a tenth of what a sum kept in half precision would be off by.
    assert error(y, exact) <= TOLERANCE[dtype] / (10 if dtype == torch.bfloat16 else 1)


def test_each_way_is_taken(monkeypatch):
    """A test of the ways above is one only if they are what runs."""
    taken = []
    monkeypatch.setattr(matmul, "_widened", lambda *a: taken.append("widened") or F.linear(*a))
    monkeypatch.setattr(matmul, "_transposed", lambda *a: taken.append("transposed") or F.linear(*a).T)
    monkeypatch.setattr(torch, "mv", lambda w, x: taken.append("mv") or w @ x)
    monkeypatch.setattr(matmul, "_multiplies", lambda dtype: True)
    half, full = torch.randn(20, 10).bfloat16(), torch.randn(20, 10)
    for rows in (1, 3, 20):
        matmul.linear(torch.randn(rows, 10).bfloat16(), half)
        matmul.linear(torch.randn(rows, 10), full)
    monkeypatch.setattr(matmul, "_multiplies", lambda dtype: False)
    for rows in (1, 20):
        matmul.linear(torch.randn(rows, 10).bfloat16(), half)
    assert taken == ["mv", "transposed", "transposed", "widened"]


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
