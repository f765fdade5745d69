"""Work that grows as the text. A scan that remembers everything, or reads all again, shows."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from clearhead.layer_state import ScanState
from clearhead.nn.mamba import Mamba
from tests.claims.quick import verdict


def test_it_holds() -> None:
    assert verdict("linear-time") == "holds"


def test_a_scan_that_compares_all_pairs_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = Mamba.forward

    def squared(self: Mamba, x_BTD: torch.Tensor, p: Any) -> torch.Tensor:
        pairs_BTT = x_BTD @ x_BTD.mT
        return scan(self, x_BTD, p) + 0 * pairs_BTT.sum()

    monkeypatch.setattr(Mamba, "forward", squared)
    assert verdict("linear-time") == "does not hold"


def test_a_state_that_grows_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = ScanState.keep

    def keeps_all(self: ScanState, n_tokens: int, tail: torch.Tensor, h: torch.Tensor) -> None:
        keep(self, n_tokens, tail.repeat(1, n_tokens, 1), h)

    monkeypatch.setattr(ScanState, "keep", keeps_all)
    assert verdict("linear-time") == "does not hold"


def test_pairs_without_products_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    scan = Mamba.forward

    def squared(self: Mamba, x_BTD: torch.Tensor, p: Any) -> torch.Tensor:
        pairs_BTTD = x_BTD[:, :, None] + x_BTD[:, None]
        return scan(self, x_BTD, p) + 0 * pairs_BTTD.sum()

    monkeypatch.setattr(Mamba, "forward", squared)
    assert verdict("linear-time") == "does not hold"
