"""The grouped experts against the loop over all of them, and the loop against a formula."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from clearhead.ops import experts as experts_module
from clearhead.ops.activations import clamped_gate
from clearhead.ops.experts import ExpertWeights, experts_grouped, experts_loop
from tests.oracles import TOLERANCE, error

D, WIDTH = 24, 20


def inner(gate, up):
    return F.silu(up) if gate is None else F.silu(gate) * up


def some_experts(n, *, gated=True, bias=False, dtype=torch.float64):
    def draw(*shape):
        return (torch.randn(*shape) * shape[-1] ** -0.5).to(dtype).requires_grad_()

    return ExpertWeights(
        up=draw(n, WIDTH, D),
        down=draw(n, D, WIDTH),
        gate=draw(n, WIDTH, D) if gated else None,
        up_bias=draw(n, WIDTH) if bias else None,
        down_bias=draw(n, D) if bias else None,
        gate_bias=draw(n, WIDTH) if bias and gated else None,
    )


def some_choice(n_tokens, n_chosen, n_experts, dtype=torch.float64):
    chosen = torch.stack([torch.randperm(n_experts)[:n_chosen] for _ in range(n_tokens)])
    return torch.randn(n_tokens, D).to(dtype), chosen, torch.rand(n_tokens, n_chosen).to(dtype)


def test_the_loop_is_the_formula():
    """y_n = sum_c w_nc W_down (silu(W_gate x) * W_up x + ...), token by token."""
    w = some_experts(5, bias=True)
    x, chosen, weights = some_choice(4, 2, 5)
    expected = torch.zeros_like(x)
    for n in range(4):
        for c in range(2):
            e = chosen[n, c]
            gate, up = w.gate[e] @ x[n] + w.gate_bias[e], w.up[e] @ x[n] + w.up_bias[e]
            post = gate * torch.sigmoid(gate) * up
            expected[n] += weights[n, c] * (w.down[e] @ post + w.down_bias[e])
    assert error(experts_loop(x, chosen, weights, w, inner), expected) <= 1e-12


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("gated", [False, True])
@pytest.mark.parametrize(("n_tokens", "n_chosen", "n_experts"), [(1, 1, 4), (1, 3, 8), (9, 2, 4), (50, 4, 64)])
def test_grouped_is_the_loop(n_tokens, n_chosen, n_experts, gated, bias):
    w = some_experts(n_experts, gated=gated, bias=bias)
    x, chosen, weights = some_choice(n_tokens, n_chosen, n_experts)
    x.requires_grad_()
    weights.requires_grad_()
    leaves = [x, weights, *(t for t in vars(w).values() if t is not None)]
    found, expected = (f(x, chosen, weights, w, inner) for f in (experts_grouped, experts_loop))
    assert error(found, expected) <= 1e-12
    mine, theirs = (torch.autograd.grad(y.square().sum(), leaves) for y in (found, expected))
    for a, b in zip(mine, theirs, strict=True):
        assert error(a, b) <= 1e-12
    with torch.no_grad():
        assert error(experts_grouped(x, chosen, weights, w, inner), expected) <= 1e-12


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_grouped_in_other_dtypes(dtype):
    """Weights stay in float32, as routers give them."""
    w = some_experts(8, bias=True, dtype=dtype)
    exact = ExpertWeights(**{k: v.double() for k, v in vars(w).items()})
    x, chosen, weights = some_choice(40, 3, 8, dtype)
    expected = experts_loop(x.double(), chosen, weights.double(), exact, inner)
    for f in (experts_grouped, experts_loop):
        with torch.no_grad():
            y = f(x, chosen, weights.float(), w, inner)
        assert y.dtype == dtype
        assert error(y, expected) <= TOLERANCE[dtype]


@pytest.mark.parametrize("n_experts", [4, 64])
def test_only_chosen_experts_are_multiplied(monkeypatch, n_experts):
    """Three products for each chosen expert, however many there are."""
    calls = []
    product = experts_module._product
    monkeypatch.setattr(experts_module, "_product", lambda *a: calls.append(a[0].shape[0]) or product(*a))
    chosen = torch.tensor([[3, 1], [1, 3], [1, 2]])
    x, weights = torch.randn(3, D), torch.rand(3, 2)
    with torch.no_grad():
        experts_grouped(x, chosen, weights, some_experts(n_experts, dtype=torch.float32), inner)
    assert sorted(calls) == sorted([3, 1, 2] * 3)


def test_no_tokens():
    w = some_experts(4)
    x, chosen, weights = torch.zeros(0, D).double(), torch.zeros(0, 2).long(), torch.zeros(0, 2).double()
    assert experts_grouped(x, chosen, weights, w, inner).shape == (0, D)


def test_clamped_gate():
    """gpt-oss: (up + 1) * gate * sigmoid(1.702 gate), with the gate at most 7 and up within 7."""
    gate = torch.tensor([-50.0, -1.0, 2.0, 9.0], dtype=torch.float64)
    up = torch.tensor([3.0, -9.0, 0.5, 8.0], dtype=torch.float64)
    g, u = torch.tensor([-50.0, -1.0, 2.0, 7.0]).double(), torch.tensor([3.0, -7.0, 0.5, 7.0]).double()
    assert error(clamped_gate(gate, up, 7.0, 1.702), (u + 1) * g / (1 + torch.exp(-1.702 * g))) <= 1e-12
