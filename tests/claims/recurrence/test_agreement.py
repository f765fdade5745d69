"""Verbs far from their subjects; models that see the nearest words alone show."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.claims.ingredients import agreeing
from clearhead.claims.ingredients.small_models import attention
from clearhead.claims.recurrence import agreement
from clearhead.config import AttentionConfig, MaskConfig
from clearhead.model.transformer import Transformer
from tests.claims.quick import verdict


@pytest.mark.slow
def test_it_holds() -> None:
    assert verdict("agreement") == "holds"


@pytest.mark.slow
def test_a_decoder_that_sees_the_nearest_noun_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def near(n_heads: int, d_head: int) -> AttentionConfig:
        return replace(attention(n_heads, d_head), mask=MaskConfig(window=2))

    def all_right(model: Transformer, sentences: Sequence[agreeing.Sentence]) -> int:
        return len(sentences)

    monkeypatch.setattr(agreement, "attention", near)
    monkeypatch.setattr(agreement, "prefers_right", all_right)
    assert verdict("agreement") == "does not hold"


@pytest.mark.slow
def test_a_reader_that_sees_the_nearest_noun_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    forward = Transformer.forward

    def near(self: Transformer, tokens_BT: Tensor, **inputs: Any) -> Any:
        present_BT = torch.ones_like(tokens_BT, dtype=torch.bool)
        present_BT[:, :-2] = False
        return forward(self, tokens_BT, present=present_BT, **inputs)

    def learned(*_: object) -> dict[str, list[Any]]:
        return {"step": [1], "right": [[1.0] * 5]}

    monkeypatch.setattr(agreement, "learn", learned)
    monkeypatch.setattr(Transformer, "forward", near)
    assert verdict("agreement") == "does not hold"


def test_pairs_differ_in_number_alone() -> None:
    one, many = agreeing.pair(random.Random(1), 2)
    assert one.right == many.wrong and one.wrong == many.right
    assert one.start.count("s ") + one.start.endswith("s") > many.start.count("s ") + many.start.endswith("s")
    assert one.start.replace("s", "") == many.start.replace("s", "")


def test_the_grammar_agrees() -> None:
    made = agreeing.written(200, torch.Generator().manual_seed(0), 3)
    verb_B = made.words_BT.gather(1, made.verb_B[:, None])[:, 0]
    assert torch.equal(verb_B >= agreeing.PLURAL, made.plural_B)
    nearest_B = made.words_BT.gather(1, made.verb_B[:, None] - 1)[:, 0]
    assert torch.equal(nearest_B >= agreeing.NOUNS + agreeing.N_NOUNS, ~made.plural_B)


def test_the_small_models_are_of_one_size() -> None:
    sizes = [
        sum(p.numel() for p in Transformer(config).parameters()) for config in agreement.small_models(False).values()
    ]
    assert max(sizes) < 1.01 * min(sizes)
