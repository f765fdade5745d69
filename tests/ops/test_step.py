"""The kernels of a step give what the plain forms give, and leave to those what they can't do."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from clearhead.ops import norms, positions, step
from tests.oracles import TOLERANCE, error

DTYPES = (torch.float32, torch.bfloat16)

pytestmark = pytest.mark.skipif(not step._library(), reason="there is no C compiler here")


@pytest.fixture(autouse=True)
def _without_gradients():
    with torch.inference_mode():
        yield


def kernels(x: Tensor) -> step.Kernels:
    found = step.kernels(x)
    assert found is not None
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("round_first", [False, True])
@pytest.mark.parametrize("shape", [(1, 1, 640), (3, 5, 100), (2, 7), (300, 640)])
def test_a_norm_is_the_formula(dtype: torch.dtype, round_first: bool, shape: tuple[int, ...]) -> None:
    x, weight = torch.randn(shape).to(dtype), torch.randn(shape[-1])
    weight = weight.to(dtype) if round_first else weight
    got = kernels(x).rms_norm(x, weight.float(), 1e-6, round_first)
    want = norms.rms_norm(x, weight, None, 1e-6, round_first)
    assert got is not None and got.dtype == dtype
    # Where both round a sum to the last bit of float32, a half type hides even that.
    assert error(got, want) <= (1e-6 if dtype == torch.float32 else 1e-2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("turned", [64, 16])
def test_a_rotation_has_every_bit_of_the_plain_one(dtype: torch.dtype, interleaved: bool, turned: int) -> None:
    x_BH1K = torch.randn(3, 1, 4, 64).to(dtype).transpose(1, 2)
    for n_rows in (1, 3):
        cos, sin = (torch.randn(n_rows, 1, 1, turned).to(dtype) for _ in range(2))
        got = kernels(x_BH1K).rotate(x_BH1K, cos, sin, interleaved)
        assert got is not None and torch.equal(got, positions.rotate(x_BH1K, cos, sin, interleaved))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n_heads", "n_groups", "width"), [(4, 1, 256), (6, 6, 20), (1, 1, 33), (8, 2, 272)])
def test_one_query_is_the_formula(
    dtype: torch.dtype, n_heads: int, n_groups: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a part of a longer buffer, for numbers of keys around those that go together, and enough for all threads."""
    monkeypatch.setattr(step, "WIDE", 0)
    n_groups = n_groups if dtype == torch.float32 else n_heads
    for n_threads in (1, 3):
        torch.set_num_threads(n_threads)
        for n_keys in (1, 2, 15, 16, 17, 37, 1200):
            q_BH1K = 3 * torch.randn(2, n_heads, 1, width).to(dtype)
            k_BGSK, v_BGSK = (torch.randn(2, n_groups, n_keys + 9, width).to(dtype)[:, :, :n_keys] for _ in range(2))
            got = kernels(q_BH1K).attend(q_BH1K, k_BGSK, v_BGSK, width**-0.5)
            k_BHSK, v_BHSK = (x.double().repeat_interleave(n_heads // n_groups, dim=1) for x in (k_BGSK, v_BGSK))
            want = torch.softmax(q_BH1K.double() @ k_BHSK.mT * width**-0.5, dim=-1) @ v_BHSK
            assert got is not None and error(got, want) <= TOLERANCE[dtype] / 5
    torch.set_num_threads(1)


def test_what_they_cannot_do_is_left_to_the_plain_forms() -> None:
    x = torch.randn(2, 1, 1, 256)
    assert step.kernels(x.double()) is None and step.kernels(x.half()) is None
    with torch.inference_mode(False), torch.enable_grad():
        assert step.kernels(torch.randn(3)) is None
    own = kernels(x)
    assert own.rms_norm(torch.randn(8, 8).T, torch.ones(8), 1e-6, False) is None
    assert own.rms_norm(torch.randn(8, 8), torch.ones(8).double(), 1e-6, False) is None
    assert own.rotate(x, x.double(), x.double(), False) is None
    keys = torch.randn(2, 1, 5, 256)
    assert own.attend(x, keys, torch.randn(2, 1, 5, 300), 1.0) is None
    assert own.attend(x, keys[:, :, :0], keys[:, :, :0], 1.0) is None
    assert own.attend(x, keys.mT.contiguous().mT, keys, 1.0) is None
