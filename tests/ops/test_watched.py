"""Kernels that torch does not see are not used where somebody follows what torch computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx

from clearhead.config import NormConfig
from clearhead.nn.norm import Norm
from clearhead.ops.watched import is_watched
from tests.oracles import error


def traced(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    made: Tensor = torch.jit.trace(function, (torch.randn_like(x),), check_trace=False)(x)
    return made


def drawn(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    made: Tensor = make_fx(function)(torch.randn_like(x))(x)
    return made


@pytest.mark.parametrize("way", [traced, drawn])
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:.*torch.jit:DeprecationWarning")
def test_a_recorded_norm_reads_what_it_is_given(way: Callable[[Callable[[Tensor], Tensor], Tensor], Tensor]) -> None:
    norm, x = Norm(64, NormConfig(kind="rms", eps=1e-5)), torch.randn(2, 64)
    with torch.no_grad():
        assert error(way(norm, x), norm(x)) <= 1e-6


def test_a_derivative_goes_forward_through_a_norm() -> None:
    norm = Norm(64, NormConfig(kind="rms", eps=1e-5)).double()
    x, way = torch.randn(2, 64, dtype=torch.float64), torch.randn(2, 64, dtype=torch.float64)
    with torch.no_grad():
        _, exact = torch.func.jvp(norm, (x,), (way,))
        for dtype, bound in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
            with forward_ad.dual_level():
                y = norm.to(dtype)(forward_ad.make_dual(x.to(dtype), way.to(dtype)))
                found = forward_ad.unpack_dual(y).tangent
            assert found is not None and error(found, exact) <= bound


def test_made_up_numbers_are_not_read() -> None:
    norm, x = Norm(64, NormConfig(kind="rms", eps=1e-5)), torch.randn(2, 64)
    with torch.no_grad(), FakeTensorMode(allow_non_fake_inputs=True):
        assert is_watched()
        assert norm(x).shape == x.shape
    assert not is_watched()
