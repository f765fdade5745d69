"""The claim of the first gradients' dependence on depth."""

from __future__ import annotations

from typing import Any

import pytest

from clearhead.claims.block import gradient_by_depth
from clearhead.claims.ingredients.norm_placement import decoder_with_norms
from tests.claims.quick import verdict


def test_holds() -> None:
    assert verdict("gradient-by-depth") == "holds"


@pytest.mark.parametrize("everywhere", ["pre", "post"])
def test_fails_where_norms_stand_elsewhere(everywhere: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def misplaced(placement: Any, *depth: int, **sizes: int) -> Any:
        return decoder_with_norms(everywhere, *depth, **sizes)

    monkeypatch.setattr(gradient_by_depth, "decoder_with_norms", misplaced)
    assert verdict("gradient-by-depth") == "does not hold"
