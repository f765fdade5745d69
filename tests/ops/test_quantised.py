"""Weights in blocks, and the product with them: by C, by C for any processor, and by torch alone."""

from __future__ import annotations

import copy
import ctypes
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from jaxtyping import TypeCheckError
from torch import Tensor, nn

from clearhead.errors import ClearheadError
from clearhead.native import library
from clearhead.ops import quantised
from clearhead.ops.blocks import SCALES, SIZES, unpack
from clearhead.ops.quantised import NATIVE, QuantisedTensor, product, several
from tests.oracles import error

SOURCE = Path(quantised.__file__).with_name("quantised.c")
ROUNDING = 3e-6
"""What a sum of 512 products loses in float32, of the largest there is; measured 2e-6 at most."""


def blocks(kind: str, n_out: int, n_in: int, seed: int = 0) -> QuantisedTensor:
    """Every bit pattern of the weights, with scales of ordinary size."""
    size, generator = SIZES[kind], torch.Generator().manual_seed(seed)
    raw = torch.randint(0, 256, (n_out * n_in // size.block, size.nbytes), dtype=torch.uint8, generator=generator)
    for at in SCALES.get(kind, (0,)):
        scale = torch.rand(len(raw), 1, generator=generator) * 0.01 - 0.002
        raw[:, at : at + 2] = scale.half().view(torch.uint8)
    return QuantisedTensor(raw.view(n_out, -1), kind)


@pytest.fixture(params=["this processor", "any processor", "no compiler"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How products are worked out."""
    definitions = ("ANY_PROCESSOR",) if request.param == "any processor" else ()
    made = library(SOURCE, *definitions)
    if request.param == "no compiler":
        made = None
    elif made is None:
        pytest.skip("there is no C compiler here")
    else:
        plain = quantised._kernels.__wrapped__
        monkeypatch.setattr(quantised, "library", lambda source: made)
        made = plain()
    monkeypatch.setattr(quantised, "_kernels", lambda: made)
    return request.param


@pytest.mark.parametrize("kind", NATIVE)
@pytest.mark.parametrize("n_rows", [1, 2, 3, 5, 8, 30])
def test_the_product_is_that_of_the_plain_weights(way: str, kind: str, n_rows: int) -> None:
    """Rows of W that fill no tile, and an activation a hundred times larger than its neighbours."""
    torch.manual_seed(1)
    weight, x = blocks(kind, 37, 512), torch.randn(n_rows, 512)
    x[:, 5] *= 100
    plain = unpack(weight.raw, kind)
    exact = x.double() @ plain.double().T
    assert torch.equal(weight.dequantise(), plain)
    assert torch.equal(weight.to(torch.bfloat16).dequantise(), plain.bfloat16())
    assert (product(x, weight) - exact).abs().max() <= ROUNDING * exact.abs().max()
    bias = torch.randn(37)
    assert torch.equal(product(x, weight, bias), product(x, weight) + bias)


@pytest.mark.parametrize("kind", NATIVE)
def test_extremes_stay_exact(way: str, kind: str) -> None:
    """All bits set, all activations alike and as large as their group: where 32 bits would first be too few."""
    size = SIZES[kind]
    raw = torch.full((3 * 256 // size.block, size.nbytes), 255, dtype=torch.uint8)
    for at in SCALES.get(kind, (0,)):
        raw[:, at : at + 2] = torch.tensor([0.5], dtype=torch.float16).view(torch.uint8)
    weight = QuantisedTensor(raw.view(3, -1), kind)
    plain = unpack(weight.raw, kind).double()
    for x in (torch.full((2, 256), 3.0), torch.full((1, 256), -1e30), torch.zeros(1, 256), torch.eye(256)[:4] * 1e-30):
        exact = x.double() @ plain.T
        assert (product(x, weight) - exact).abs().max() <= ROUNDING * exact.abs().max()


@pytest.mark.parametrize("kind", ["Q5_0", "Q8_0", "Q6_K"])
def test_a_row_is_the_same_alone_and_in_a_crowd(way: str, kind: str) -> None:
    if way == "no compiler":
        pytest.skip("torch's own product is another for one row than for several")
    weight, x = blocks(kind, 20, 256), torch.randn(11, 256)
    crowd = product(x, weight)
    assert all(torch.equal(product(x[i : i + 1], weight)[0], crowd[i]) for i in range(11))


def test_several_weights_are_each_alone(way: str) -> None:
    weights = [blocks("Q5_0", 48, 256), blocks("Q8_0", 16, 256, seed=1), blocks("Q4_K", 7, 256, seed=2)]
    x, biases = torch.randn(2, 3, 256), [None, torch.randn(16), None]
    for _ in range(2):
        for y, weight, bias in zip(several(x, weights, biases), weights, biases, strict=True):
            assert torch.equal(y, product(x, weight, bias))
    assert torch.equal(several(x, weights[:2], biases[:2])[1], product(x, weights[1], biases[1]))
    assert torch.equal(product(x, weights[0]), several(x, weights, biases)[0])


def test_a_large_weight_is_unpacked_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, x = blocks("Q8_0", 50, 256), torch.randn(40, 256)
    whole = product(x, weight)
    monkeypatch.setattr(quantised, "SLICE", 7 * 256)
    assert error(product(x, weight), whole) <= ROUNDING


def test_half_types_are_rounded_once() -> None:
    weight, x = blocks("Q5_0", 24, 256), torch.randn(2, 256).bfloat16()
    half = weight.to(torch.bfloat16)
    assert half.dtype == torch.bfloat16 and half.kind == "Q5_0"
    assert torch.equal(product(x, half), product(x.float(), weight).bfloat16())


def test_modules_take_it_for_a_weight() -> None:
    weight = blocks("Q5_0", 24, 256)
    plain = weight.dequantise()
    layer, table = nn.Linear(256, 24, bias=False), nn.Embedding(24, 256)
    layer.weight = table.weight = nn.Parameter(weight, requires_grad=False)
    ids = torch.tensor([[3, 0], [23, 3]])
    assert torch.equal(table(ids), plain[ids])
    x = torch.randn(2, 256, requires_grad=True)
    assert error(layer(x), x @ plain.T) <= ROUNDING
    layer(x).sum().backward()
    assert error(x.grad, plain.sum(0).expand(2, -1)) <= ROUNDING
    assert dict(layer.named_parameters())["weight"].nbytes == 24 * 256 // 32 * 22


LOOKS: dict[str, Callable[[Tensor], Tensor]] = {
    "slice": lambda w: w[2:9],
    "row": lambda w: w[4],
    "columns": lambda w: w[:, 3:5],
    "turned": lambda w: w.T @ w,
    "rows": lambda w: w.index_select(0, torch.tensor([5, 1])),
    "last columns": lambda w: w.narrow(-1, 34, 34),
    "first columns": lambda w: w.index_select(-1, torch.arange(34)),
    "column": lambda w: w.select(-1, 3),
    "last row": lambda w: w.select(-2, -1),
    "sum": lambda w: w.float().sum(),
    "joined": lambda w: torch.cat([w, w]),
    "norm": lambda w: torch.linalg.vector_norm(w, dim=1),
    "copy": lambda w: copy.deepcopy(w),
    "pickle": lambda w: pickle.loads(pickle.dumps(w)),
}


@pytest.mark.parametrize("look", LOOKS)
def test_whatever_looks_at_it_sees_the_plain_weight(look: str) -> None:
    weight = nn.Parameter(blocks("Q8_0", 24, 256), requires_grad=False)
    seen = LOOKS[look](weight)
    assert torch.equal(quantised.plain(seen), LOOKS[look](weight.dequantise()))


def test_it_is_not_written_to() -> None:
    weight = nn.Parameter(blocks("Q4_0", 24, 256), requires_grad=False)
    writes: dict[str, Callable[[], object]] = {
        "zero": lambda: weight.zero_(),
        "times": lambda: weight.mul_(2),
        "trained": lambda: weight.requires_grad_(),
        "trained by name": lambda: setattr(weight, "requires_grad", True),
        "other data": lambda: setattr(weight, "data", torch.zeros(24, 256)),
    }
    for write in writes.values():
        with pytest.raises(ClearheadError, match=r"kept quantised.*load the model without weights="):
            write()


def test_what_is_not_a_number_stays_none(way: str) -> None:
    weight, x = blocks("Q8_0", 5, 256), torch.randn(3, 256)
    x[0, 7], x[1, 200] = float("nan"), float("inf")
    y = product(x, weight)
    assert not y[:2].isfinite().any() and y[2].isfinite().all()


def test_a_misfit_is_refused_as_torch_does(way: str) -> None:
    weight = blocks("Q8_0", 5, 256)
    for width in (64, 512):
        with pytest.raises((RuntimeError, TypeError)):
            product(torch.randn(1, width), weight)
    table = nn.Embedding(5, 256)
    table.weight = nn.Parameter(weight, requires_grad=False)
    for ids in (-1, 5):
        with pytest.raises(IndexError):
            table(torch.tensor([ids]))


def test_torch_may_follow_the_product() -> None:
    weight, x = blocks("Q5_0", 5, 256), torch.randn(2, 256)
    plain = weight.dequantise()
    doubled = torch.func.jvp(lambda v: F.linear(v, weight), (x,), (x,))[1]
    assert error(doubled, x @ plain.T) <= ROUNDING
    mapped = torch.func.vmap(lambda v: F.linear(v, weight))(x)
    assert error(mapped, x @ plain.T) <= ROUNDING
    assert error(F.linear(input=weight, weight=weight), plain @ plain.T) <= ROUNDING
    layer = nn.Linear(256, 5)
    layer.weight = nn.Parameter(weight, requires_grad=False)
    with torch.no_grad():
        moved = layer.to(torch.bfloat16)
    assert isinstance(moved.weight, QuantisedTensor) and moved.weight.dtype == torch.bfloat16


def test_odd_widths_are_multiplied_too() -> None:
    """Half a pair of groups: unpacked."""
    weight, x = blocks("Q8_0", 9, 96), torch.randn(2, 96)
    assert error(product(x, weight), x @ weight.dequantise().T) <= ROUNDING
    assert error(F.linear(x, weight), x @ weight.dequantise().T) <= ROUNDING


def test_a_compiler_that_fails_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    broken = tmp_path / "broken.c"
    broken.write_text("this is not C")
    assert library(broken) is None
    good = tmp_path / "good.c"
    good.write_text("int five(void) { return 5; }")
    assert isinstance(made := library(good), ctypes.CDLL) and made.five() == 5
    monkeypatch.setenv("CLEARHEAD_NATIVE", "0")
    assert library.__wrapped__(good) is None
    assert not list(tmp_path.rglob("*.tmp"))


def test_another_width_is_refused_and_not_read_beyond(way: str) -> None:
    weight = blocks("Q8_0", 16, 512)
    with pytest.raises((RuntimeError, TypeCheckError)):
        product(torch.randn(1, 1024), weight)
    with pytest.raises((RuntimeError, TypeCheckError)):
        several(torch.randn(2, 512), [weight, blocks("Q8_0", 16, 256)], [None, None])
