"""What breaks claims that need positions."""

from __future__ import annotations

import pytest
from torch import Tensor

from clearhead.nn import attention


def drop_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention turns no queries and keys, so that no head can tell the token before from any other."""

    def unturned(x_BHTK: Tensor, tables: tuple[Tensor, Tensor], interleaved: bool) -> Tensor:
        return x_BHTK

    monkeypatch.setattr(attention, "turned", unturned)
