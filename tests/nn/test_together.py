"""Projections that read the same stream as one product: the same numbers, and the model stays what it was."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from clearhead.nn import packing
from clearhead.nn.linear import Linear, together
from clearhead.ops import matmul
from tests.oracles import TOLERANCE, error


def layers_of(dtype: torch.dtype, bias: bool = True) -> list[Linear]:
    torch.manual_seed(0)
    return [Linear(192, n, bias=bias).to(dtype) for n in (256, 128, 96)]


def exact(x: Tensor, layers: list[Linear]) -> Iterator[Tensor]:
    for layer in layers:
        bias = 0 if layer.bias is None else layer.bias.double()
        yield x.double() @ layer.weight.double().T + bias


def holds(x: Tensor, layers: list[Linear]) -> None:
    for got, want in zip(together(x, *layers), exact(x, layers), strict=True):
        assert got.shape == want.shape and got.dtype == x.dtype
        assert error(got, want) <= TOLERANCE[x.dtype] / 5


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("n_rows", [1, 3, 8, 40])
def test_the_products_are_those_of_the_layers(dtype: torch.dtype, bias: bool, n_rows: int) -> None:
    layers, x = layers_of(dtype, bias), torch.randn(n_rows, 1, 192).to(dtype)
    holds(x, layers)
    with packing.packing():
        holds(x, layers)
        holds(x, layers)
    holds(x, layers)


@torch.no_grad()
@pytest.mark.parametrize("n_rows", [1, 4])
def test_a_weight_or_bias_that_is_written_to_counts_at_once(n_rows: int) -> None:
    layers, x = layers_of(torch.float32), torch.randn(n_rows, 192)
    with packing.packing():
        holds(x, layers)
        layers[1].weight.mul_(2)
        holds(x, layers)
        layers[2].bias.add_(1)
        holds(x, layers)
        layers[0].weight.data = layers[0].weight.data.flip(0).contiguous()
        holds(x, layers)
        layers[0].weight = nn.Parameter(torch.randn(64, 192))
        layers[0].bias = nn.Parameter(torch.randn(64))
        holds(x, layers)


@torch.no_grad()
def test_parameters_side_by_side_are_the_same_parameters() -> None:
    """In float32 they move: their names, shapes, values and identities stay, and no memory is kept beside."""
    layers = layers_of(torch.float32)
    before = [(layer.weight, layer.weight.clone()) for layer in layers]
    with torch.inference_mode(), packing.packing():
        together(torch.randn(1, 192), *layers)
    assert not packing._packing.copies
    assert len({layer.weight.untyped_storage().data_ptr() for layer in layers}) == 1
    for layer, (parameter, values) in zip(layers, before, strict=True):
        assert layer.weight is parameter and not parameter.is_inference()
        assert parameter.is_contiguous() and parameter.requires_grad and torch.equal(parameter, values)
    apart = copy.deepcopy(layers)
    assert len({layer.weight.untyped_storage().data_ptr() for layer in apart}) == 3
    with torch.enable_grad():
        x = torch.randn(2, 192)
        sum(y.sum() for y in together(x, *layers)).backward()
        assert all(error(layer.weight.grad, x.sum(0).expand_as(layer.weight)) < 1e-6 for layer in layers)


@torch.no_grad()
def test_a_layer_that_somebody_changed_is_asked_itself() -> None:
    layers, x = layers_of(torch.float32), torch.randn(1, 192)
    with packing.packing():
        handle = layers[1].register_forward_hook(lambda module, inputs, output: output + 1)
        plain = [y.float() for y in exact(x, layers)]
        assert error(together(x, *layers)[1], plain[1] + 1) < 1e-5
        handle.remove()
        everywhere = nn.modules.module.register_module_forward_hook(lambda module, inputs, output: output + 2)
        assert error(together(x, *layers)[0], plain[0] + 2) < 1e-5
        everywhere.remove()

        class Doubled(Linear):
            def forward(self, x: Tensor) -> Tensor:
                return 2 * super().forward(x)

        other = Doubled(192, 8)
        y, z = together(x, layers[0], other)
        assert error(y, plain[0]) < 1e-5 and torch.equal(z, other(x))


@torch.no_grad()
def test_without_room_each_goes_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = layers_of(torch.float32)
    monkeypatch.setattr(packing, "_free", lambda: 1000.0)
    with packing.packing():
        for n_rows in (1, 4):
            holds(torch.randn(n_rows, 192), layers)
        assert not packing._packing.copies
    assert not packing._packing.refused
    assert len({layer.weight.untyped_storage().data_ptr() for layer in layers}) == 3


@torch.no_grad()
@pytest.mark.skipif(not matmul.has_onednn(), reason="torch was built without oneDNN")
def test_several_rows_in_float32_read_a_packed_copy() -> None:
    layer, x = layers_of(torch.float32)[0], torch.randn(8, 192)
    with packing.packing():
        holds(x, [layer])
        layer(x)
        assert len(packing._packing.copies) == 1
        layer(x[:1])
        assert len(packing._packing.copies) == 1


@torch.no_grad()
def test_a_weight_that_is_no_parameter_any_more_counts() -> None:
    layers, x = layers_of(torch.float32), torch.randn(1, 192)
    with packing.packing():
        holds(x, layers)
        changed = layers[1].weight * 3
        del layers[1].weight
        layers[1].weight = changed
        holds(x, layers)


@torch.no_grad()
def test_parameters_that_are_shared_stay_where_they_are() -> None:
    layers = layers_of(torch.float32)
    for layer in layers:
        layer.weight.share_memory_()
    before = [layer.weight.data_ptr() for layer in layers]
    with torch.inference_mode(), packing.packing():
        together(torch.randn(1, 192), *layers)
    assert [layer.weight.data_ptr() for layer in layers] == before
    assert all(layer.weight.is_shared() for layer in layers)


@torch.no_grad()
def test_a_layer_whose_forward_was_replaced_is_asked() -> None:
    layers, calls = layers_of(torch.float32), []
    forward = layers[1].forward
    layers[1].forward = lambda x: calls.append(1) or forward(x)
    with torch.inference_mode(), packing.packing():
        together(torch.randn(1, 192), *layers)
    assert calls
