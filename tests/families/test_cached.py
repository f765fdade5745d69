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

# Cached passes sum in another order than whole ones.
F32 = TOLERANCE[torch.float32]

causal = pytest.mark.parametrize("pair", tiny.cases("decoder", "seq2seq", "audio"), indirect=True, ids="-".join)


class Walk:
    """Passes with a state, each held to the last slots of one over the whole text so far."""

    def __init__(self, pair: Pair) -> None:
        self.pair = pair
        self.whole: dict[int, Tensor] = {}
        self.restart()

    def restart(self, capacity: int | None = None) -> None:
        self.at = 0
        self.state = self.pair.ours.new_state(capacity) if capacity else self.pair.ours.new_state()

    def read(self, n: int) -> None:
        """The next `n` tokens; the source or the sound is given with the first."""
        start, stop = self.at, min(self.at + n, N_TOKENS)
        x = self.pair.inputs.slots(slice(start, stop))
        if start > 0:
            x = replace(x, source=None, frames=None)
        out = self.pair.ask(x, state=self.state)
        if stop not in self.whole:
            self.whole[stop] = self.pair.ask(self.pair.inputs.slots(slice(0, stop)))
        found = error(out, self.whole[stop][:, start:])
        note(self.pair.family, "cached", found)
        assert found <= F32, f"tokens {start} to {stop}"
        self.at = stop

    def truncate(self, length: int) -> None:
        self.state.truncate(length)
        self.at = length


@causal
def test_every_split_and_uneven_chunks(pair: Pair) -> None:
    walk = Walk(pair)
    for first in range(1, N_TOKENS) if pair.first else (1, 6, 13, 19):
        walk.restart()
        walk.read(first)
        walk.read(N_TOKENS - first)
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
        if walk.state.can_truncate(length):
            walk.truncate(length)
            walk.read(2)
        else:
            with pytest.raises(ClearheadError, match="start a new state"):
                walk.truncate(length)
            assert walk.state.length == N_TOKENS
            continue
        walk.read(1)
        walk.read(N_TOKENS)


@causal
def test_a_state_with_padding_anywhere(pair: Pair) -> None:
    present = torch.tensor(
        [[1] * 20, [0] * 6 + [1] * 5 + [0] * 2 + [1] * 7, [1] * 4 + [0] * 5 + [1] * 9 + [0] * 2], dtype=torch.bool
    )
    alone: dict[tuple[int, int], Tensor] = {}

    def held(out: Tensor, start: int, stop: int) -> None:
        """Every new token equals the last of its row's text alone."""
        for b in range(3):
            for slot in range(start, stop):
                n = int(present[b, : slot + 1].sum())
                length = int(present[b, :stop].sum())
                if not present[b, slot]:
                    continue
                if (b, length) not in alone:
                    text = pair.inputs.row(b).slots(present[b].nonzero()[:length, 0])
                    alone[b, length] = pair.ask(text)[0]
                found = error(out[b, slot - start], alone[b, length][n - 1])
                note(pair.family, "cached", found)
                assert found <= F32, (start, stop, b, slot)

    for first, step in [(1, 1), (5, 1), (8, 1), (12, 1), (5, 3), (8, 4)] if pair.first else [(5, 1), (8, 4)]:
        state = pair.ours.new_state()
        ends = [first, *range(first + step, N_TOKENS, step), N_TOKENS]
        start = 0
        for stop in ends:
            x: Inputs = pair.inputs.slots(slice(start, stop))
            if start > 0:
                x = replace(x, source=None, frames=None)
            held(pair.ask(x, present=present[:, start:stop], state=state), start, stop)
            start = stop
