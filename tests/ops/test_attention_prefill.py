"""Blocks of queries against the reference: every mask they serve, prompts in chunks, and what another kernel gets."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clearhead.ops import attention_prefill as prefill
from clearhead.ops.attention import attention
from clearhead.ops.attention_prefill import attention_prefill, served
from clearhead.ops.backends import attend, choose, request
from clearhead.ops.masks import Around, BoundMask, Causal, Everything, Mask, Positions, SameDocument, Window, bind
from clearhead.ops.matmul import has_onednn, multiplies
from tests.oracles import TOLERANCE, error

pytestmark = pytest.mark.skipif(
    not has_onednn(), reason="blocks are made for oneDNN, which this torch is built without"
)
SERVED = [Causal(), Everything(), Causal() & Window(7), Causal() & Window(1)]
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of few queries, and problems as small."""
    monkeypatch.setattr(prefill, "TALL", 2)
    monkeypatch.setattr(prefill, "WIDE", 2)
    monkeypatch.setattr(prefill, "CELLS", 128)


def given(n_queries: int, n_keys: int, dtype: torch.dtype = torch.float32, n_groups: int = 2, d_value: int = 8) -> Any:
    """Queries, keys and values as a layer has them: heads of one token beside each other."""
    draw = torch.Generator().manual_seed(0)

    def heads(n: int, tokens: int, width: int) -> torch.Tensor:
        return torch.randn(3, tokens, n, width, generator=draw).to(dtype).transpose(1, 2)

    return heads(4, n_queries, 8), heads(n_groups, n_keys, 8), heads(n_groups, n_keys, d_value)


def dtypes() -> list[torch.dtype]:
    return [torch.float32, *([torch.bfloat16] if multiplies(torch.bfloat16) else [])]


@pytest.mark.parametrize("dtype", dtypes())
@pytest.mark.parametrize("mask", SERVED, ids=str)
@pytest.mark.parametrize("shape", [(20, 20), (20, 33), (5, 64), (1, 9)])
def test_blocks_agree_with_the_reference(shape: tuple[int, int], mask: Mask, dtype: torch.dtype) -> None:
    for n_groups, d_value in ((2, 8), (1, 8), (4, 5)):
        q, k, v = given(*shape, dtype, n_groups, d_value)
        bound = bind(mask, *shape)
        assert served(q, k, v, bound) == (shape[0] * 4 // n_groups >= 2)
        truth = attention(q.double(), k.double(), v.double(), bind(mask, *shape), scale=0.3)
        found = attention_prefill(q, k, v, bound, scale=0.3)
        assert found.dtype == dtype
        assert error(found, truth) <= TOLERANCE[dtype]
    assert "dense" not in bound.__dict__ or not served(q, k, v, bound)


def test_a_prompt_in_chunks_is_the_prompt() -> None:
    q, k, v = given(40, 40)
    whole = attention(q, k, v, bind(Causal() & Window(9), 40, 40), scale=0.3)
    for begin in range(0, 40, 16):
        end, low = min(begin + 16, 40), max(0, begin - 8)  # as a ring keeps them
        mask = BoundMask(Causal() & Window(9), Positions(span=(begin, end)), Positions(span=(low, end)), CPU)
        part = attention_prefill(q[:, :, begin:end], k[:, :, low:end], v[:, :, low:end], mask, scale=0.3)
        assert error(part, whole[:, :, begin:end]) <= 1e-6


def test_what_is_not_served_goes_to_the_fused_kernel() -> None:
    q, k, v = given(20, 20)
    padded = Positions(rows_BT=torch.arange(20).expand(3, 20))
    for bound in (
        bind(Around(2), 20, 20),
        bind(Causal() & SameDocument(torch.zeros(1, 20, dtype=torch.long)), 20, 20),
        BoundMask(Causal(), padded, padded, CPU),
        BoundMask(Causal(), Positions(span=(0, 20)), Positions(span=(5, 25)), CPU),  # rows without a key
    ):
        assert not served(q, k, v, bound)
        assert error(attention_prefill(q, k, v, bound, scale=0.3), attention(q, k, v, bound, scale=0.3)) <= 1e-6
    wants = q.clone().requires_grad_()
    plain = bind(Causal(), 20, 20)
    assert served(q, k, v, plain)
    assert not served(wants, k, v, plain)
    with torch.no_grad():
        assert served(wants, k, v, plain)
    assert not served(q.double(), k.double(), v.double(), plain)


def test_auto_chooses_blocks_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = given(20, 20)
    for mask in SERVED:
        choice = choose("auto", request(q, k, v, bind(mask, 20, 20)))
        assert (choice.name, "no gradient" in choice.reason) == ("prefill", True)
    assert choose("auto", request(q, k, v, bind(Causal(), 20, 20), sinks_H=torch.zeros(4))).name != "prefill"
    asked: list[int] = []
    keys = prefill._keys

    def noted(mask: BoundMask, begin: int, end: int) -> Any:
        asked.append(begin)
        return keys(mask, begin, end)

    monkeypatch.setattr(prefill, "_keys", noted)
    attend(q, k, v, bind(Everything(), 20, 20), scale=0.3)
    assert asked
