"""Operations counted, against the formulas; and the machine's peak."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from clearhead.costs.counter import count_flops
from clearhead.costs.machine import matmul_peak


def test_a_product_and_its_gradients() -> None:
    """2 n m k forward, and as much again for each of the two gradients."""
    a, b = torch.randn(3, 5, requires_grad=True), torch.randn(5, 7, requires_grad=True)
    assert count_flops(lambda: a @ b) == 2 * 3 * 5 * 7
    assert count_flops(lambda: (a @ b).sum().backward()) == 3 * 2 * 3 * 5 * 7


@pytest.mark.parametrize("causal", [False, True])
def test_the_fused_kernel_of_the_cpu_is_counted(causal: bool) -> None:
    """Forward as the steps written out: 2 B H T S (K + V); backward five such products and not four."""
    q, k, v = (torch.randn(2, 3, n, 8, requires_grad=True) for n in (32, 32, 32))

    def written_out() -> Tensor:
        return torch.softmax(q @ k.mT, dim=-1) @ v

    def fused() -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    product = 2 * 2 * 3 * 32 * 32 * 8
    assert count_flops(fused) == count_flops(written_out) == 2 * product
    assert count_flops(lambda: written_out().sum().backward()) == (2 + 4) * product
    assert count_flops(lambda: fused().sum().backward()) == (2 + 5) * product


def test_the_peak_is_measured_without_a_random_number() -> None:
    before = torch.get_rng_state()
    assert matmul_peak(size=64, repeats=2) > 1e6
    assert torch.equal(torch.get_rng_state(), before)
