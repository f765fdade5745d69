"""The claim that two thirds of a standard block are MLP."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from clearhead.claims.block import two_thirds
from clearhead.costs.source import Named
from tests.claims.quick import measured, verdict


def test_holds() -> None:
    assert verdict("two-thirds") == "holds"


def test_the_formula_is_met() -> None:
    """Of GPT-2's block, with biases and norms: 8 d^2 + 5 d of 12 d^2 + 13 d."""
    d = 768
    assert measured("two-thirds").values["GPT-2"] == pytest.approx(
        (8 * d * d + 5 * d) / (12 * d * d + 13 * d), rel=1e-12
    )


def test_fails_where_an_mlp_is_half_as_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    read = two_thirds.read_config

    def narrow(block: Any) -> Any:
        op = block.ffn.op
        return (
            replace(block, ffn=replace(block.ffn, op=replace(op, d_ff=op.d_ff // 2))) if hasattr(op, "d_ff") else block
        )

    def halved(source: str) -> Named:
        found = read(source)
        stacks = {
            name: replace(stack, blocks=tuple(map(narrow, stack.blocks)))
            for name in ("encoder", "decoder")
            if (stack := getattr(found.config, name)) is not None
        }
        return Named(found.name, replace(found.config, **stacks))

    monkeypatch.setattr(two_thirds, "read_config", halved)
    assert verdict("two-thirds") == "does not hold"
