"""What generation gives back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from clearhead.generation.kept import Kept
    from clearhead.generation.rows import Row

FinishReason = Literal["stop", "length", "budget", "context", "unfinished"]
"""Why a text ended. "stop": a stop token or a stop text. "length": max_new_tokens. "budget": max_text characters.
"context": the model's window is full. "unfinished": it has not ended, the stream was left before."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """What an answer is to."""

    prompt_tokens: list[int]
    """What the model was given, after encoding and cutting: with an encoder, the source; nothing for a sound."""
    cached_tokens: int = 0
    """How many of `prompt_tokens` were not read, since a prefix had read them."""


@dataclass(frozen=True, kw_only=True)
class Result(Given):
    """The answer to one prompt."""

    text: str
    """The new text, without the stop that ended it; empty when the model has no tokenizer."""
    tokens: list[int]
    """The new token ids, with those of the stop that ended the text."""
    finish_reason: FinishReason
    matched: str | int | None = None
    """The stop text or stop token that ended it."""
    logprobs: list[float] | None = None
    """The log-probability of each new token under the model itself, if asked for."""
    top_logprobs: list[dict[int, float]] | None = None
    """The likeliest tokens at each place with their log-probabilities, best first, if asked for."""
    state: Kept | None = None
    """The text with the model's memory of it, if asked for with keep=True."""


@dataclass(frozen=True, kw_only=True)
class BeamResult(Result):
    """The answer that a beam search found best."""

    score: float
    """The sum of log-probabilities, after penalties and bans, over (new tokens) ** length_penalty."""
    beams: list[BeamResult] = field(default_factory=list)
    """The n_best answers, best first; this one is the first of them."""


class Piece(str):
    """A bit of new text: a str that knows its tokens. Text appears when it is certain, so one piece may hold several
    tokens, and the last tokens of an answer may come with none.
    """

    tokens: list[int]
    """The ids drawn since the last piece."""
    logprobs: list[float] | None
    """Their log-probabilities, if asked for."""


class Stream(Iterator[Piece]):
    """New text piece by piece; `result` tells the whole of it, complete once the pieces have ended."""

    def __init__(self, row: Row, steps: Iterator[None], *, has_text: bool) -> None:
        self._row = row
        self._steps = steps
        self._has_text = has_text
        self._told = 0

    def __next__(self) -> Piece:
        for _ in self._steps:
            text = self._row.take_fresh()
            if text or not self._has_text:
                piece = Piece(text)
                piece.tokens = self._row.new[self._told :]
                piece.logprobs = self._row.logprobs[self._told :] if self._row.logprobs is not None else None
                self._told = len(self._row.new)
                return piece
        raise StopIteration

    @property
    def result(self) -> Result:
        """The answer so far."""
        return self._row.result()
