"""The faster ways on real weights: Gemma's 262,144 tokens, of which a shortlist leaves a few hundred."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import clearhead
from clearhead.generation.shortlist import Shortlist

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("gemma")]

PROMPT = "def area(shape):\n    if shape.kind == 'circle':\n        return 3 * shape.radius ** 2\n\ndef area(shape):\n"


def test_gemma_writes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Shortlist] = []
    init = Shortlist.__init__

    def noted(self: Shortlist, *args: Any) -> None:
        init(self, *args)
        made.append(self)

    monkeypatch.setattr(Shortlist, "__init__", noted)
    model = clearhead.load("gemma3-270m")
    how: dict[str, Any] = {"max_new_tokens": 16, "stop_tokens": ()}
    plain = clearhead.generate(model, PROMPT, **how).tokens
    assert clearhead.generate(model, PROMPT, shortlist=True, lookup=True, **how).tokens == plain
    assert made[0].asked > 0 and made[0].doubted <= 1
    assert torch.tensor(made[0].listed).float().mean() < model.config.vocab_size / 50
