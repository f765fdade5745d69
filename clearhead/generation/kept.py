"""A text and the model's memory of it, to be continued later."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from clearhead.errors import ClearheadError
from clearhead.state import State


@dataclass(kw_only=True)
class Kept:
    """One text so far. Continuing it moves `state` on, so a `Kept` serves once: `copy()` it to branch."""

    state: State
    tokens: list[int]
    """The whole text, prompt and answer."""
    n_read: int
    """How many of `tokens` the state has read: the last token drawn is still to be read."""
    drawn: list[int] = field(default_factory=list)
    """Which places in `tokens` were drawn and not given."""
    length: int
    """The state's length when this was kept, in slots."""
    stream: int = 0
    """Which of several equal prompts of one batch it was, for the draw."""

    def copy(self) -> Kept:
        """Another one, on its own."""
        self.check()
        return Kept(
            state=copy_state(self.state),
            tokens=list(self.tokens),
            n_read=self.n_read,
            drawn=list(self.drawn),
            length=self.length,
            stream=self.stream,
        )

    def check(self) -> None:
        """Refuse a state that went on since."""
        if self.state.length != self.length:
            raise ClearheadError(
                "this kept text was continued already and its memory has moved on; continue from the newer result, "
                "or take a copy() before continuing"
            )

    def back_to(self, tokens: Sequence[int]) -> list[int] | None:
        """Cut this text back to the beginning it shares with `tokens`, and give the rest of them, still to be read.

        For a conversation that is written out anew each turn. None, and nothing changed, when the memory can't
        be cut there (a window has slid past it): read the whole text anew then.
        """
        self.check()
        shared = 0
        # At least one token has to be left to read: the next one is drawn from its scores.
        while shared < min(len(self.tokens), len(tokens) - 1) and self.tokens[shared] == tokens[shared]:
            shared += 1
        n_read = min(shared, self.n_read)
        length = self.length - (self.n_read - n_read)
        if not self.state.can_truncate(length):
            return None
        if length < self.length:
            self.state.truncate(length)
        self.length, self.n_read = length, n_read
        self.tokens = self.tokens[:shared]
        self.drawn = [place for place in self.drawn if place < shared]
        return list(tokens[shared:])


def copy_state(state: State, row: int | None = None) -> State:
    """A state on its own: all rows, or one of them."""
    # Ordinary tensors even when called while generating, so that a later pass may write to them anywhere.
    with torch.inference_mode(False), torch.no_grad():
        other = copy.deepcopy(state)
        if row is not None:
            other.select([row])
    return other
