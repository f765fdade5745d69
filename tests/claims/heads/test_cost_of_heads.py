"""Eight heads of 64 cost what one of 512 does."""

from __future__ import annotations

import pytest
from torch import Tensor

from clearhead.claims.heads import cost_of_heads
from clearhead.claims.ingredients.small_models import attention
from clearhead.config import AttentionConfig
from clearhead.forward import Pass
from clearhead.nn.attention import Attention
from clearhead.ops.masks import BoundMask
from tests.claims.quick import measured, verdict


def test_it_holds() -> None:
    assert verdict("cost-of-heads") == "holds"


def test_not_for_heads_of_the_full_width(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(n_heads: int, d_head: int) -> AttentionConfig:
        return attention(n_heads, cost_of_heads.WIDTH)

    monkeypatch.setattr(cost_of_heads, "attention", full)
    assert measured("cost-of-heads").values["parameters, eight heads to one"] == 8
    assert verdict("cost-of-heads") == "does not hold"


def test_not_where_heads_lie_in_another_order_than_w_o_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    def mixed(self: Attention, q_BHTK: Tensor, k_BGSK: Tensor, v_BGSK: Tensor, mask: BoundMask, p: Pass) -> Tensor:
        q_BHTK = p.tap(self.path, "q", q_BHTK)
        z_BHTK = p.tap(self.path, "z", self._attend(q_BHTK, k_BGSK, v_BGSK, mask, p))
        out_BTD: Tensor = self.o_proj(z_BHTK.flip(1).transpose(1, 2).flatten(2))
        return out_BTD

    monkeypatch.setattr(Attention, "_mixed", mixed)
    assert verdict("cost-of-heads") == "does not hold"


def test_not_where_a_head_does_not_hear_its_own_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cost_of_heads, "at", lambda change, heads: lambda q_BHTK: q_BHTK)
    assert verdict("cost-of-heads") == "does not hold"
