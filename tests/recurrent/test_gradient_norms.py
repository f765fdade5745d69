"""Gradients a step: against autograd through a chain written out, and what decays and explodes."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from clearhead.config import InitConfig
from clearhead.errors import ClearheadError
from clearhead.model.build import build
from clearhead.model.init import initialise
from clearhead.recurrent import gradient_norms, language_model

WORDS = 12


def test_it_is_the_derivative_through_all_later_steps() -> None:
    """A simple network step by step, each hidden vector a leaf of autograd in its turn."""
    torch.manual_seed(0)
    model = build(language_model("simple", vocab_size=WORDS, d_model=6)).double()
    initialise(model, InitConfig(std=0.5))
    tokens = torch.randint(WORDS, (3, 9))
    cell = model.layers[0].mixer.cell
    h, kept = torch.zeros(3, 6, dtype=torch.float64), []
    for t in range(6):
        h = torch.tanh(cell.x_proj(model.embed.tokens(tokens[:, t])) + cell.h_proj(h))
        h.retain_grad()
        kept.append(h)
    F.cross_entropy(h @ model.head.weight.T, tokens[:, 6], reduction="sum").backward()
    expected = torch.stack([h.grad.norm(dim=-1).mean() for h in kept])
    found = gradient_norms(model, tokens, at=5)
    assert found.shape == (6,)
    assert torch.allclose(found, expected, rtol=1e-12)


def test_gains_below_and_above_one() -> None:
    """S4: with an orthogonal recurrent matrix times the gain, the gradient goes like the gain to the power."""
    slopes = []
    for gain in (0.8, 1.0, 1.2):
        torch.manual_seed(0)
        model = build(language_model("simple", vocab_size=WORDS, d_model=32, gain=gain)).double()
        with torch.no_grad():
            for p in model.layers[0].mixer.cell.x_proj.parameters():
                p.zero_()  # nothing is read, so every tanh is at nought, where its slope is 1
        norms = gradient_norms(model, torch.randint(WORDS, (2, 30)))
        slopes.append(float((norms[0] / norms[-1]) ** (1 / 28)))
    assert slopes == pytest.approx([0.8, 1.0, 1.2], rel=1e-5)


def test_nothing_follows_the_last() -> None:
    model = build(language_model("gru", vocab_size=WORDS, d_model=6))
    for at in (-1, 4, 5, 7, -6):
        with pytest.raises(ClearheadError, match=f"at is {at}; of 5 tokens"):
            gradient_norms(model, torch.zeros(1, 5, dtype=torch.long), at=at)
    with pytest.raises(ClearheadError, match="nothing called"):
        gradient_norms(model, torch.zeros(1, 5, dtype=torch.long), site="layers.1.mixer.hidden")
