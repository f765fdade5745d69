"""Experts and their routers. Routers that do not look, and experts that all do the same, show."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from clearhead.claims.scale import experts
from clearhead.nn.experts import Router
from tests.claims.quick import verdict


@pytest.mark.slow
def test_it_holds() -> None:
    assert verdict("experts") == "holds"


@pytest.mark.slow
def test_a_router_that_does_not_look_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    route = Router.forward

    def blind(self: Router, x_BTD: Tensor) -> Tensor:
        return route(self, x_BTD * 0)

    monkeypatch.setattr(Router, "forward", blind)
    assert verdict("experts") == "does not hold"


def test_information_of_labels_that_are_told_and_that_are_not() -> None:
    labels_N = torch.arange(4).repeat(6)
    told_NC = torch.stack([labels_N, labels_N], dim=1)
    assert experts.information(labels_N, told_NC) == pytest.approx(1.3863, abs=1e-4)
    assert experts.information(labels_N, torch.zeros_like(told_NC)) == pytest.approx(0, abs=1e-12)


def test_texts_keep_to_the_symbols_of_their_language() -> None:
    generator: Any = torch.Generator().manual_seed(0)
    spoken = experts.languages(0)
    text_BT, language_B = experts.texts(spoken, 8, 16, generator)
    for text, language in zip(text_BT, language_B, strict=True):
        assert set(text.tolist()) <= set(spoken.symbols_LS[language].tolist())
