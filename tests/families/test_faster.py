"""The faster ways to a family's greedy tokens give the tokens: reading ahead, and choosing from a shortlist."""

from __future__ import annotations

from typing import Any

import pytest

import clearhead
from clearhead.config import TransformerConfig
from clearhead.errors import UsageError
from clearhead.generation import decode, shortlist
from clearhead.generation.options import RowConfig, RunConfig
from clearhead.generation.rows import Row
from clearhead.layer_state import RunningState
from tests import tiny
from tests.families.pairs import Pair
from tests.generation.test_ahead import Half

pytestmark = pytest.mark.usefixtures("without_shape_checks")

HOW: dict[str, Any] = {"max_new_tokens": 20, "stop_tokens": (), "follow_config": False}


@pytest.mark.parametrize("pair", tiny.cases("decoder"), indirect=True, ids="-".join)
def test_faster_ways_give_the_same_tokens(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    config = pair.ours.config
    if not isinstance(config, TransformerConfig) or config.heads.tokens is None:
        return
    assert pair.inputs.tokens is not None
    prompt = pair.inputs.tokens[2, :6].tolist()
    plain = clearhead.generate(pair.ours, prompt, **HOW).tokens
    monkeypatch.setattr(shortlist, "LEAST", 0)
    monkeypatch.setattr(shortlist, "SHARE", 0.5)
    assert shortlist.Shortlist.serves(pair.ours, [Row(RowConfig(), prompt)], RunConfig()) is (
        config.heads.tokens.scale > 0
    )
    assert clearhead.generate(pair.ours, prompt, shortlist=True, **HOW).tokens == plain
    ops = [block.mixer.op for block in config.stack.blocks]
    if any(getattr(getattr(op, "positions", None), "depends_on_length", False) for op in ops):
        return
    recurrent = any(isinstance(layer, RunningState) for layer in pair.ours.new_state().layers)
    if recurrent:
        with pytest.raises(UsageError, match="take back"):
            clearhead.generate(pair.ours, prompt, draft=pair.ours, **HOW)
    else:
        assert clearhead.generate(pair.ours, prompt, draft=pair.ours, **HOW).tokens == plain
    for wrong in (2, 5):
        half = Half(prompt + plain, wrong, config.vocab_size)
        monkeypatch.setattr(decode, "Lookup", lambda half=half: half)
        assert clearhead.generate(pair.ours, prompt, lookup=True, **HOW).tokens == plain
        assert half.drafted > 0
