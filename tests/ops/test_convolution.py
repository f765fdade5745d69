"""The causal convolution against its formula, and in pieces."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from clearhead.ops.convolution import causal_convolution
from tests.oracles import error


def by_hand(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, document: torch.Tensor) -> torch.Tensor:
    """y_t = bias + sum over s <= t of weight[W - 1 - (t - s)] x_s, for s in the same document."""
    y = bias.expand_as(x).clone()
    width = weight.shape[1]
    for b in range(x.shape[0]):
        for t in range(x.shape[1]):
            for s in range(max(0, t - width + 1), t + 1):
                if document[b, s] == document[b, t]:
                    y[b, t] += weight[:, width - 1 - (t - s)] * x[b, s]
    return y


@pytest.mark.parametrize("width", [1, 2, 4])
def test_formula(width: int) -> None:
    x, weight, bias = torch.randn(2, 9, 5).double(), torch.randn(5, width).double(), torch.randn(5).double()
    one = torch.zeros(2, 9, dtype=torch.long)
    y = causal_convolution(F.pad(x, (0, 0, width - 1, 0)), weight, bias)
    assert error(y, by_hand(x, weight, bias, one)) <= 1e-12
    assert error(y, F.conv1d(x.mT, weight[:, None], bias, padding=width - 1, groups=5)[..., :9].mT) <= 1e-12
    no_bias = causal_convolution(F.pad(x, (0, 0, width - 1, 0)), weight)
    assert error(no_bias, y - bias) <= 1e-12


def test_documents_do_not_meet() -> None:
    x, weight, bias = torch.randn(2, 9, 5).double(), torch.randn(5, 4).double(), torch.randn(5).double()
    reach = torch.tensor([[0, 1, 2, 0, 1, 2, 3, 4, 5], [0, 0, 0, 1, 2, 3, 4, 0, 1]])
    document = (reach == 0).cumsum(dim=1)
    y = causal_convolution(F.pad(x, (0, 0, 3, 0)), weight, bias, reach)
    assert error(y, by_hand(x, weight, bias, document)) <= 1e-12


def test_a_kept_tail_continues() -> None:
    x, weight, bias = torch.randn(2, 9, 5).double(), torch.randn(5, 4).double(), torch.randn(5).double()
    padded = F.pad(x, (0, 0, 3, 0))
    whole = causal_convolution(padded, weight, bias)
    for cut in range(1, 9):
        first = causal_convolution(padded[:, : cut + 3], weight, bias)
        second = causal_convolution(padded[:, cut:], weight, bias)
        assert error(torch.cat([first, second], dim=1), whole) <= 1e-12
