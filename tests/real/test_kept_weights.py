"""Gemma 3 270M with its weights in the file's own blocks: the tokens of the plain weights."""

from __future__ import annotations

import pytest
import torch

import clearhead
from clearhead.model.transformer import Transformer
from clearhead.ops.quantised import QuantisedTensor
from tests.oracles import REAL_TOLERANCE, error

PROMPTS = ["The capital of France is", "def fibonacci(n):\n", "1, 2, 3, 4,", "Once upon a time, a fox"]


@pytest.fixture(scope="module")
def plain() -> Transformer:
    return clearhead.load("gemma3-270m")


@pytest.fixture(scope="module")
def kept() -> Transformer:
    return clearhead.load("gemma3-270m", weights="stored")


def test_it_takes_up_what_the_file_does(kept: Transformer) -> None:
    kinds = {p.kind for p in kept.parameters() if isinstance(p, QuantisedTensor)}
    assert kinds == {"Q8_0", "Q5_0", "Q4_K", "Q6_K"}
    assert sum(p.nbytes for p in kept.parameters()) == pytest.approx(246.6e6, rel=1e-3)


@pytest.mark.slow
def test_the_tokens_are_those_of_the_plain_weights(plain: Transformer, kept: Transformer) -> None:
    """Each alone, and all in one batch."""
    alone = [[clearhead.generate(m, p, max_new_tokens=48).tokens for p in PROMPTS] for m in (plain, kept)]
    assert alone[0] == alone[1]
    assert [r.tokens for r in clearhead.generate(kept, PROMPTS, max_new_tokens=48)] == alone[0]


@pytest.mark.slow
def test_the_logits_are_those_of_the_plain_weights(plain: Transformer, kept: Transformer) -> None:
    """A whole pass unpacks its weights, a short one multiplies blocks."""
    tokens = torch.tensor([[2, *range(1000, 1040)]])
    with torch.inference_mode():
        for n in (3, 41):
            assert error(kept(tokens[:, :n]), plain(tokens[:, :n])) <= REAL_TOLERANCE
