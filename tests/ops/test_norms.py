"""Norms and activations against their formulas."""

from __future__ import annotations

import pytest
import torch

from clearhead.config import NormConfig
from clearhead.errors import ClearheadError
from clearhead.nn.norm import Norm
from clearhead.ops.activations import activation
from tests.oracles import TOLERANCE, error


def by_hand(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, c: NormConfig) -> torch.Tensor:
    x, weight = x.double(), weight.double() + c.offset
    if c.kind == "layer":
        x = x - x.mean(-1, keepdim=True)
    y = x / (x.pow(2).mean(-1, keepdim=True) + c.eps).sqrt() * weight
    return y if bias is None else y + bias.double()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "config",
    [
        NormConfig(kind="layer", eps=1e-5, bias=True),
        NormConfig(kind="layer", eps=1e-2),
        NormConfig(eps=1e-6),
        NormConfig(eps=1e-1, bias=True),
        NormConfig(offset=1.0, round_first=False),
        NormConfig(offset=1.0, kind="layer"),
    ],
)
def test_norms(config, dtype):
    norm = Norm(48, config)
    with torch.no_grad():
        norm.weight.normal_()
        if norm.bias is not None:
            norm.bias.normal_()
    norm = norm.to(dtype)
    for n in (5, 500):  # few tokens and many go different ways
        x = (3 * torch.randn(2, n, 48) + 1).to(dtype)
        exact = by_hand(x, norm.weight, norm.bias, config)
        with torch.no_grad():
            fast = norm(x)
        assert fast.dtype == norm(x).dtype == dtype
        assert error(norm(x), exact) <= TOLERANCE[dtype]
        assert error(fast, exact) <= TOLERANCE[dtype]


@pytest.mark.parametrize("round_first", [False, True])
def test_the_fast_way_follows_a_changed_weight(round_first):
    norm, x = Norm(32, NormConfig(offset=1.0, round_first=round_first)), torch.randn(1, 1, 32)
    with torch.no_grad():
        before = norm(x)
        norm.weight.add_(1.0)
        assert error(norm(x), 2 * before) <= 1e-6
        norm = norm.to(torch.bfloat16)
        assert error(norm(x.bfloat16()), 2 * before) <= TOLERANCE[torch.bfloat16]
        norm.weight = torch.nn.Parameter(torch.zeros(32))
        assert error(norm(x), before) <= 1e-6
    with torch.inference_mode():
        assert error(norm(x), before) <= 1e-6


def test_a_new_norm_changes_only_the_scale():
    x = torch.randn(4, 32)
    for config in (NormConfig(offset=1.0), NormConfig(), NormConfig(kind="layer", bias=True)):
        y = Norm(32, config)(x)
        assert error(y.pow(2).mean(-1), torch.ones(4)) <= 1e-5


def test_statistics_are_taken_in_float32():
    """300^2 is beyond float16: squared there, it would be infinite and the answer zero."""
    x = torch.full((1, 64), 300.0, dtype=torch.float16)
    assert error(Norm(64, NormConfig()).half()(x), torch.ones(1, 64)) <= TOLERANCE[torch.float16]


def test_activations():
    x = torch.linspace(-3, 3, 31, dtype=torch.float64)
    phi = 0.5 * (1 + torch.erf(x / 2**0.5))
    tanh = 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))
    expected = {
        "gelu": x * phi,
        "gelu_tanh": tanh,
        "quick_gelu": x / (1 + torch.exp(-1.702 * x)),
        "relu": x * (x > 0),
        "relu_squared": (x * (x > 0)) ** 2,
        "silu": x / (1 + torch.exp(-x)),
        "tanh": (torch.exp(2 * x) - 1) / (torch.exp(2 * x) + 1),
    }
    for name, y in expected.items():
        assert error(activation(name)(x), y) <= 1e-12, name
    with pytest.raises(ClearheadError, match="gelu_tanh"):
        activation("gelu_new")


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("shape", [(7, 48), (2, 5, 48), (2, 3, 5, 48)])
@pytest.mark.parametrize("offset", [0.0, 1.0])
def test_gradients_of_rms_norm_are_those_of_its_formula(shape, offset, dtype):
    norm = Norm(48, NormConfig(eps=1e-2, offset=offset, bias=True))
    with torch.no_grad():
        norm.weight.normal_()
    x = (3 * torch.randn(shape) + 1).transpose(0, -2)  # heads are not next to each other in memory
    weight = torch.randn_like(x).double()
    exact = [t.detach().double().requires_grad_() for t in (x, norm.weight, norm.bias)]
    (by_hand(*exact, norm.config) * weight).sum().backward()
    norm, x = norm.to(dtype), x.to(dtype).requires_grad_()
    (norm(x) * weight.to(dtype)).sum().backward()
    for found, wanted in zip((x, norm.weight, norm.bias), exact, strict=True):
        assert found.grad.dtype == dtype
        assert error(found.grad, wanted.grad) <= TOLERANCE[dtype]


def test_a_norm_that_is_not_trained_gets_no_gradient_and_hands_one_on():
    norm, x = Norm(48, NormConfig()), torch.randn(3, 48, requires_grad=True)
    norm.weight.requires_grad_(False)
    norm(x).sum().backward()
    assert norm.weight.grad is None and x.grad.any()


def test_the_way_that_is_compiled_is_the_tanh_gelu(monkeypatch):
    x = torch.linspace(-9, 9, 4001, dtype=torch.float64)
    exact = 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))
    assert error(activation("gelu_tanh")(x), exact) <= 1e-12
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert error(activation("gelu_tanh")(x), exact) <= 1e-12
