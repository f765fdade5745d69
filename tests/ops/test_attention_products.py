"""Attention by whole products, against the float64 reference: parts of every size, groups, documents, compiled code."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.costs.counter import count_flops
from clearhead.ops import attention_products as products
from clearhead.ops import backends
from clearhead.ops.attention import attention
from clearhead.ops.attention_products import attention_products
from clearhead.ops.attention_sdpa import attention_sdpa
from clearhead.ops.backends import attend, choose, request
from clearhead.ops.masks import Causal, Everything, Mask, SameDocument, Window, bind
from tests.oracles import TOLERANCE, error

T, K = 24, 8
DOCUMENTS = torch.tensor([[0] * 10 + [1] * 14, [0] * 24, [0] * 10 + [1] * 14])
MASKS: dict[str, Mask] = {
    "causal": Causal(),
    "everything": Everything(),
    "documents": Causal() & SameDocument(DOCUMENTS),
    "window": Causal() & Window(5),
}


def drawn(n_heads: int = 4, n_groups: int = 4, n_keys: int = T, dtype: torch.dtype = torch.bfloat16) -> list[Tensor]:
    """Queries, keys, values and a gradient, as projections leave them: (B, H, T, K), lying as (B, T, H, K)."""
    generator = torch.Generator().manual_seed(0)
    shapes = [(3, T, n_heads, K), (3, n_keys, n_groups, K), (3, n_keys, n_groups, K + 2), (3, T, n_heads, K + 2)]
    return [torch.randn(shape, generator=generator).to(dtype).transpose(1, 2) for shape in shapes]


def solved(function: Any, given: list[Tensor], mask: Mask, dtype: torch.dtype) -> list[Tensor]:
    """The output, and the gradients of q, k and v."""
    q, k, v = (x.to(dtype).detach().requires_grad_() for x in given[:3])
    z = function(q, k, v, bind(mask, q.shape[2], k.shape[2]), scale=0.3)
    return [z, *torch.autograd.grad(z, (q, k, v), given[3].to(dtype))]


@pytest.mark.parametrize(("cells", "queries"), [(1, 5), (200, 7), (10**6, 128)], ids=["small", "some", "whole"])
@pytest.mark.parametrize("n_groups", [4, 2, 1])
@pytest.mark.parametrize("mask", MASKS)
def test_it_is_attention(mask: str, n_groups: int, cells: int, queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "CELLS", cells)
    monkeypatch.setattr(products, "QUERIES", queries)
    given = drawn(n_groups=n_groups)
    found = solved(attention_products, given, MASKS[mask], torch.bfloat16)
    truth = solved(attention, given, MASKS[mask], torch.float64)
    for ours, theirs in zip(found, truth, strict=True):
        assert ours.dtype == torch.bfloat16
        assert error(ours, theirs) < TOLERANCE[torch.bfloat16]


@pytest.mark.parametrize(("cells", "queries"), [(1, 5), (200, 7), (10**6, 128)])
@pytest.mark.parametrize("mask", MASKS)
def test_what_is_summed_is_exact(mask: str, cells: int, queries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """In float64 nothing is left of the difference, so no part is left out or counted twice."""
    monkeypatch.setattr(products, "CELLS", cells)
    monkeypatch.setattr(products, "QUERIES", queries)
    given = drawn(n_groups=2, dtype=torch.float64)
    found, truth = (solved(f, given, MASKS[mask], torch.float64) for f in (attention_products, attention))
    assert max(error(a, b) for a, b in zip(found, truth, strict=True)) < TOLERANCE[torch.float64]


def test_more_keys_than_queries() -> None:
    given = drawn(n_keys=31, dtype=torch.float64)
    found, truth = (solved(f, given, Everything(), torch.float64) for f in (attention_products, attention))
    assert max(error(a, b) for a, b in zip(found, truth, strict=True)) < TOLERANCE[torch.float64]


def test_it_is_chosen_in_training_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v, _ = drawn()
    mask = bind(Causal(), T, T)

    def chosen(*tensors: Tensor, **more: Any) -> str:
        choose.cache_clear()
        return choose("auto", request(*tensors, mask, **more)).name

    monkeypatch.setattr(backends, "QUICK", True)
    trained = q.detach().requires_grad_()
    assert chosen(trained, k, v) == "products"
    with torch.autocast("cpu", torch.bfloat16):
        assert chosen(trained.float(), k.float(), v.float()) == "products"
        assert attend(trained.float(), k.float(), v.float(), mask, scale=0.3).dtype == torch.bfloat16
    assert chosen(q, k, v) == "sdpa"
    assert chosen(trained.float(), k.float(), v.float()) == "sdpa"
    assert chosen(trained, k, v, dropout=0.1) == "reference"
    monkeypatch.setattr(backends, "QUICK", False)
    assert chosen(trained, k, v) == "sdpa"
    choose.cache_clear()


def test_transformed_functions_go_to_the_kernel_that_knows_them() -> None:
    q, k, v, _ = drawn()

    def mixed(q_BHTK: Tensor) -> Tensor:
        z: Tensor = attention_products(q_BHTK, k, v, bind(Causal(), T, T), scale=0.3)
        return z.float().square().sum()

    found = torch.func.grad(mixed)(q)
    leaf = q.detach().requires_grad_()
    assert error(found, torch.autograd.grad(mixed(leaf), leaf)[0]) < TOLERANCE[torch.bfloat16]


def test_operations_are_counted_as_those_of_the_kernel() -> None:
    def count(function: Any) -> int:
        q, k, v = (x.detach().requires_grad_() for x in drawn()[:3])
        return count_flops(lambda: function(q, k, v[..., :K], bind(Causal(), T, T), scale=0.3).sum().backward())

    assert count(attention_products) == count(attention_sdpa) > 0
