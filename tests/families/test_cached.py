"""A text read in pieces gives what it gives whole. The whole pass is held to `transformers`' in test_parity.py.

Their own caches are no oracle: in 5.24 those of dynamic NTK, LongRoPE, Mamba, Jamba, Bamba and Mamba-2's limits give
other numbers than their whole pass.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from tests import tiny
from tests.families.figures import note
from tests.families.pairs import N_TOKENS, Inputs, Pair
from tests.oracles import TOLERANCE, error

# Shapes are checked in test_parity.py; here a model runs hundreds of times.
pytestmark = pytest.mark.usefixtures("without_shape_checks")

# Cached passes sum in another order than whole ones.
F32 = TOLERANCE[torch.float32]

causal = pytest.mark.parametrize("pair", tiny.cases("decoder", "seq2seq", "audio"), indirect=True, ids="-".join)


class Whole:
    """What whole passes give: one for all lengths, except where the frequencies depend on the length."""

    def __init__(self, pair: Pair, x: Inputs) -> None:
        assert x.tokens is not None
        self.pair, self.x, self.n = pair, x, x.tokens.shape[1]
        mixers = [block.mixer.op for block in pair.ours.config.decoder.blocks]
        self.by_length = any(getattr(op.positions, "depends_on_length", False) for op in mixers if has_positions(op))
        self.known: dict[int, Tensor] = {}

    def of(self, start: int, stop: int) -> Tensor:
        """Slots `start` to `stop` of the text up to `stop`."""
        length = stop if self.by_length else self.n
        if length not in self.known:
            self.known[length] = self.pair.ask(self.x.slots(slice(0, length)))
        return self.known[length][:, start:stop]


def has_positions(op: object) -> bool:
    return hasattr(op, "positions")


class Walk:
    """Passes with a state, each held to the same slots of a whole pass."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.whole = Whole(pair, pair.inputs)
        self.restart()

    def restart(self, capacity: int | None = None) -> None:
        self.at = 0
        self.state = self.pair.ours.new_state(capacity)

    def read(self, n: int) -> None:
        """The next `n` tokens, or all that are left; the source or the sound is given with the first."""
        start, stop = self.at, min(self.at + n, N_TOKENS)
        out = self.pair.ask(piece(self.pair.inputs, start, stop), state=self.state)
        found = error(out, self.whole.of(start, stop))
        note(self.pair.family, "cached", found)
        assert found <= F32, f"tokens {start} to {stop}"
        self.at = stop

    def truncate(self, length: int) -> None:
        self.state.truncate(length)
        self.at = length


def piece(x: Inputs, start: int, stop: int) -> Inputs:
    """Some slots, with the source or the sound if they are the first."""
    x = x.slots(slice(start, stop))
    return x if start == 0 else replace(x, source=None, frames=None)


@causal
def test_every_split_and_uneven_chunks(pair: Pair) -> None:
    walk = Walk(pair)
    for first in range(1, N_TOKENS) if pair.first else (1, 13, 19):
        walk.restart()
        walk.read(first)
        walk.read(N_TOKENS)
    for size in (1, 2, 3, 7) if pair.first else (3,):
        walk.restart(capacity=4)
        while walk.at < N_TOKENS:
            walk.read(size)
    walk.restart()
    for size in (4, 1, 7, 1, 1, 2, 3, 1):
        walk.read(size)


@causal
def test_a_text_cut_back_and_continued(pair: Pair) -> None:
    """Where frequencies depend on the length, what is kept was computed of the longer text."""
    walk = Walk(pair)
    for length in (17, 14, 10, 3) if pair.first else (14, 3):
        walk.restart()
        walk.read(12)
        walk.read(7)
        walk.read(1)
        if not walk.state.can_truncate(length):
            with pytest.raises(ClearheadError, match="start a new state"):
                walk.truncate(length)
            assert walk.state.length == N_TOKENS
            continue
        walk.truncate(length)
        walk.read(1)
        walk.read(1)
        walk.read(N_TOKENS)


@causal
def test_a_state_with_padding_anywhere(pair: Pair) -> None:
    present = torch.tensor(
        [[1] * 20, [0] * 6 + [1] * 5 + [0] * 2 + [1] * 7, [1] * 4 + [0] * 5 + [1] * 9 + [0] * 2], dtype=torch.bool
    )
    texts = [Whole(pair, pair.inputs.row(b).slots(present[b].nonzero()[:, 0])) for b in range(3)]
    for first, step in [(1, 1), (8, 1), (5, 3), (8, 4)] if pair.first else [(5, 2), (8, 4)]:
        state = pair.ours.new_state()
        start = 0
        for stop in (first, *range(first + step, N_TOKENS, step), N_TOKENS):
            x, there = piece(pair.inputs, start, stop), present[:, start:stop]
            out = pair.ask(x, present=there, state=state)
            for b in range(3):
                before, after = int(present[b, :start].sum()), int(present[b, :stop].sum())
                if after > before:
                    found = error(out[b : b + 1, there[b]], texts[b].of(before, after))
                    note(pair.family, "cached", found)
                    assert found <= F32, (start, stop, b)
            start = stop
