"""The tokens of the fast paths are those of the plain one, for every family: packed weights, projections side by side,
the kernels of a step. A text of one row, several of one length, and several of different ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import clearhead
from clearhead.config import AttentionConfig, TransformerConfig
from clearhead.generation import decode
from clearhead.nn import packing
from clearhead.ops import matmul, step
from tests import tiny
from tests.families.pairs import Pair

# Shapes are checked in test_parity.py.
pytestmark = pytest.mark.usefixtures("without_shape_checks")

N_NEW = decode.PACKS_FROM + 2


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which of the fast ways were taken. The small weights of tiny models are packed as large ones are."""
    taken: list[str] = []

    def counted(owner: Any, name: str) -> None:
        plain: Callable[..., Any] = getattr(owner, name)
        monkeypatch.setattr(owner, name, lambda *a, **k: (taken.append(name), plain(*a, **k))[1])

    monkeypatch.setattr(matmul, "PACK_FROM", 1)
    monkeypatch.setattr(step, "WIDE", 1)
    counted(matmul, "packed_linear")
    counted(packing, "_as_one")
    counted(step.Kernels, "rms_norm")
    counted(step.Kernels, "attend")
    return taken


@pytest.mark.parametrize("pair", tiny.cases("decoder"), indirect=True, ids="-".join)
def test_tokens_are_those_of_the_plain_path(pair: Pair, count: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    config = pair.ours.config
    if not isinstance(config, TransformerConfig) or config.heads.tokens is None:
        return
    tokens = pair.inputs.tokens
    assert tokens is not None
    several = [[row[:9].tolist() for row in tokens], [row[: 4 + 3 * i].tolist() for i, row in enumerate(tokens)]]
    prompts = [*([row[:6].tolist()] for row in tokens), *several]
    how: dict[str, Any] = {"max_new_tokens": N_NEW, "temperature": 0, "stop_tokens": (), "follow_config": False}
    fast = [[one.tokens for one in clearhead.generate(pair.ours, prompt, **how)] for prompt in prompts]
    if matmul.has_onednn():
        assert "packed_linear" in count
    if any(isinstance(block.mixer.op, AttentionConfig) for block in config.stack.blocks):
        assert "_as_one" in count
    count.clear()
    monkeypatch.setattr(decode, "packed", lambda steps: steps)
    monkeypatch.setattr(step, "_library", dict)
    plain = [
        [one.tokens for one in clearhead.generate(pair.ours, prompt, **how, backend="reference")] for prompt in prompts
    ]
    assert fast == plain and not count
