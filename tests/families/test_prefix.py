"""What a model remembers of a text, taken out of one state and put into another, for every family and kind of state."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead
from clearhead.generation import load_prefix, read_prefix
from clearhead.generation.fingerprint import fingerprint
from clearhead.generation.prefix import Prefix
from clearhead.generation.prefix_memory import Remembered, remember
from clearhead.generation.prompts import window
from clearhead.state import State
from tests import tiny
from tests.families.pairs import N_TOKENS, Inputs, Pair
from tests.families.test_cached import F32, Whole, piece
from tests.families.test_greedy import writes
from tests.oracles import error

# Shapes are checked in test_parity.py; here a model runs hundreds of times.
pytestmark = pytest.mark.usefixtures("without_shape_checks")

every = pytest.mark.parametrize("pair", tiny.cases("decoder", "seq2seq", "audio"), indirect=True, ids="-".join)
decoders = pytest.mark.parametrize("pair", tiny.cases("decoder"), indirect=True, ids="-".join)

N = 13
"""How many tokens are read first."""


def read(pair: Pair, x: Inputs, n: int = N, size: int = 5, **how: Any) -> State:
    state: State = pair.ours.new_state()
    for start in range(0, n, size):
        pair.ask(piece(x, start, min(start + size, n)), state=state, **how)
    return state


def goes_on(pair: Pair, x: Inputs, memory: Remembered, n: int, n_rows: int = 1) -> None:
    """Behind `n` tokens of a row, all that follow are those of a whole pass, whatever the pieces."""
    assert x.tokens is not None
    whole = Whole(pair, x)
    for capacity in (0, N_TOKENS):
        state = memory.state(pair.ours, x.tokens[0, :n].tolist(), n_rows, capacity)
        assert (state.length, state.next, state.n_rows) == (n, n, n_rows)
        for start, stop in ((n, n + 1), (n + 1, n + 4), (n + 4, N_TOKENS)):
            part = piece(x, start, stop)
            rows = replace(part, **{name: value.expand(n_rows, -1) for name, value in part.given().items()})
            out = pair.ask(rows, state=state)
            for b in range(n_rows):
                assert error(out[b : b + 1], whole.of(start, stop)) <= F32, (n, start, b)


@every
def test_a_memory_serves_any_number_of_rows_and_stays_as_it_is(pair: Pair) -> None:
    x = pair.inputs.row(0)
    state = read(pair, x)
    memory = remember(state, 0, N)
    goes_on(pair, x, memory, N)
    goes_on(pair, x, memory, N, n_rows=3)
    # The state it came from, too, is its own.
    assert error(pair.ask(piece(x, N, N_TOKENS), state=state), Whole(pair, x).of(N, N_TOKENS)) <= F32
    goes_on(pair, x, memory, N)


@every
def test_a_memory_is_cut_wherever_the_state_can_be(pair: Pair) -> None:
    x = pair.inputs.row(0)
    state = read(pair, x)
    memory = remember(state, 0, N)
    for n in range(1, N) if pair.first else (3, 8, 12):
        # A scan can be taken back to before its last pass; what is kept of it can not.
        possible = state.can_truncate(n) and memory.least < N
        assert possible == (memory.least <= n), n
        if possible:
            goes_on(pair, x, memory, n)


@every
def test_a_row_of_a_padded_batch(pair: Pair) -> None:
    """As `generate` reads prompts of unequal lengths: padding on the left."""
    n_padding = (0, 4, 7)
    present = torch.arange(N) >= torch.tensor(n_padding)[:, None]
    x = pair.inputs
    first = x.slots(slice(0, N))
    places = (torch.arange(N) - torch.tensor(n_padding)[:, None]).clamp(min=0)
    names = [name for name in ("tokens", "token_types") if name in x.given()]
    shifted = replace(x, **{name: first.given()[name].gather(1, places) for name in names})
    state = pair.ours.new_state()
    for start, stop in ((0, 6), (6, N)):
        pair.ask(piece(shifted, start, stop), present=present[:, start:stop], state=state)
    for row in range(3):
        n = N - n_padding[row]
        goes_on(pair, x.row(row), remember(state, row, n), n, n_rows=2)


@every
def test_a_file_holds_it(pair: Pair, tmp_path: Path) -> None:
    x = pair.inputs.row(1)
    assert x.tokens is not None
    memory = remember(read(pair, x), 0, N)
    tokens = x.tokens[0, : N + 1].tolist()
    Prefix(tokens=tokens, text="text", memory=memory, model=fingerprint(pair.ours)).save(tmp_path / "file")
    again = load_prefix(tmp_path / "file", pair.ours)
    assert (again.tokens, again.text, again.memory.least) == (tokens, "text", memory.least)
    for address, part in memory.parts.items():
        for name, value in part.tensors.items():
            assert torch.equal(value, again.memory.parts[address].tensors[name])
    goes_on(pair, x, again.memory, N, n_rows=2)


@decoders
def test_greedy_tokens_behind_a_prefix(pair: Pair, tmp_path: Path) -> None:
    if not writes(pair):
        return
    assert pair.inputs.tokens is not None
    text, other = (row[: window(pair.ours.config)].tolist() for row in pair.inputs.tokens[:2])
    how: dict[str, Any] = {"max_new_tokens": 5, "stop_tokens": (), "follow_config": False}
    prefix = read_prefix(pair.ours, text[:N], prefill_chunk=4)
    if pair.first:
        prefix.save(tmp_path / "file")
        prefix = load_prefix(tmp_path / "file", pair.ours)
    prompts = [text[:N], text[: N + 1], text[: N - 2], text[:4], text, other, text[:N] + other[:2]]
    alone = [clearhead.generate(pair.ours, prompt, **how) for prompt in prompts]
    behind = clearhead.generate(pair.ours, prompts, prefix=prefix, **how)
    assert [result.tokens for result in behind] == [result.tokens for result in alone]
    assert [result.prompt_tokens for result in behind] == prompts
    saved = [result.cached_tokens for result in behind]
    assert saved[5] == 0
    if prefix.memory.least < N - 3:
        assert saved[:3] == [N - 3] * 3
    else:
        assert saved == [N - 1, N - 1, 0, 0, N - 1, 0, N - 1]
