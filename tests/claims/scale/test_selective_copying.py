"""Copying what was picked from a text of nothing."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from clearhead.claims.scale import selective_copying
from clearhead.forward import Pass
from clearhead.nn.convolution import Reading
from clearhead.nn.mamba import Mamba
from tests.claims.quick import verdict


def test_the_texts_hold_the_symbols_in_order() -> None:
    text_BT, symbols_BN = selective_copying.texts(20, 12, torch.Generator().manual_seed(0))
    for text, symbols in zip(text_BT[:, :12], symbols_BN, strict=True):
        assert torch.equal(text[text < selective_copying.SYMBOLS], symbols)


@pytest.mark.slow
def test_it_holds() -> None:
    assert verdict("selective-copying") == "holds"


@pytest.mark.slow
def test_a_scan_that_does_not_look_at_the_token_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    select = Mamba._select

    def blind(self: Mamba, x_BTF: Tensor, reading: Reading, p: Pass) -> tuple[Tensor, Tensor, Tensor]:
        return select(self, torch.ones_like(x_BTF), reading, p)

    monkeypatch.setattr(Mamba, "_select", blind)
    assert verdict("selective-copying") == "does not hold"
