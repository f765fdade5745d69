"""The claim of two products holds, and not with a third product, another scale or another mask."""

from __future__ import annotations

from clearhead.claims.scaled import two_products
from clearhead.claims.verdict import FAILS, HOLDS
from clearhead.ops import attention
from tests.claims.quick import verdict


def test_it_holds() -> None:
    assert verdict("two-products") == HOLDS


def test_with_a_third_product_it_fails(monkeypatch) -> None:
    score = attention.score
    monkeypatch.setattr(attention, "score", lambda q, k: (score(q, k) + score(q, k)) / 2)
    assert verdict("two-products") == FAILS


def test_without_the_divisor_it_fails(monkeypatch) -> None:
    monkeypatch.setattr(two_products, "scale_of", lambda d_head: 1.0)
    assert verdict("two-products") == FAILS


def test_where_attention_masks_nothing_it_fails(monkeypatch) -> None:
    monkeypatch.setattr(attention, "mask_scores", lambda scores, mask, *, scale, **rest: scores * scale)
    assert verdict("two-products") == FAILS
