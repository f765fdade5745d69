"""One text under way: its tokens, its words, and when it ends."""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from clearhead.generation.options import RowConfig
from clearhead.generation.result import BeamResult, FinishReason, Result
from clearhead.generation.text import Text

if TYPE_CHECKING:
    from clearhead.generation.kept import Kept
    from clearhead.inputs.stream import StreamDecoder


class Row:
    """A prompt and what has been drawn behind it."""

    def __init__(
        self,
        config: RowConfig,
        prompt: list[int],
        *,
        given: list[int] | None = None,
        before: Kept | None = None,
        ends: Collection[int] = (),
        room: int | None = None,
        decoder: StreamDecoder | None = None,
        stream: int = 0,
    ) -> None:
        """
        Args:
            config: the row's options.
            prompt: the tokens given in this call.
            given: what the caller gave, where that is not the prompt: the source, with an encoder.
            before: the text this one continues.
            ends: token ids that end it.
            room: how many tokens the whole text may have and still be continued; None: any number.
            decoder: what turns its new tokens into text.
            stream: which of several equal prompts it is, for the draw.
        """
        self.config = config
        self.given = prompt if given is None else given
        self.tokens = [*(before.tokens if before is not None else ()), *prompt]
        self.drawn = list(before.drawn) if before is not None else []
        self.new: list[int] = []
        self.logprobs: list[float] | None = None
        self.top_logprobs: list[dict[int, float]] | None = None
        self.finish_reason: FinishReason | None = None if config.limits.max_new_tokens > 0 else "length"
        self.kept: Kept | None = None
        self.stream = stream
        self.n_cached = 0
        """How many tokens of the prompt a prefix had read."""
        self.ends = frozenset(ends)
        self.score = 0.0
        self.beams: list[Row] | None = None
        """The best texts a search found behind this prompt, best first."""
        self._matched: int | None = None
        self._room = room
        self._decoder = decoder
        self._text = Text(config.limits.stop, config.limits.max_text)
        self._fresh: list[str] = []

    def take(self, token: int) -> None:
        """Add a drawn token; `finish_reason` is set when the text ends with it."""
        self.drawn.append(len(self.tokens))
        self.tokens.append(token)
        self.new.append(token)
        if token in self.ends:
            self._matched = token
            self._finish("stop")
        elif self._decoder is not None:
            self._show(self._decoder.push(token))
        if self.finish_reason is None:
            if len(self.new) >= self.config.limits.max_new_tokens:
                self._finish("length")
            elif self._room is not None and len(self.tokens) > self._room:
                self._finish("context")

    @property
    def most_new(self) -> int:
        """How many new tokens there can be at most."""
        most = self.config.limits.max_new_tokens
        return most if self._room is None else min(most, self._room + 1 - (len(self.tokens) - len(self.new)))

    def fork(self) -> Row:
        """Another one with the same text so far."""
        other = copy.copy(self)
        other.tokens, other.drawn, other.new = list(self.tokens), list(self.drawn), list(self.new)
        other.logprobs = None if self.logprobs is None else list(self.logprobs)
        other.top_logprobs = None if self.top_logprobs is None else list(self.top_logprobs)
        other._text, other._decoder, other._fresh = copy.copy(self._text), copy.copy(self._decoder), []
        return other

    def _show(self, piece: str) -> None:
        self._fresh.append(self._text.push(piece))
        if self._text.ended:
            self.finish_reason = "budget" if self._text.spent else "stop"

    def _finish(self, reason: FinishReason) -> None:
        """End the text, unless what was still held back ends it for a reason of its own."""
        if self._decoder is not None:
            self._show(self._decoder.flush())
            self._fresh.append(self._text.flush())
            if self._text.ended:
                reason = "budget" if self._text.spent else "stop"
        self.finish_reason = reason

    def take_fresh(self) -> str:
        """The text that became certain since the last call."""
        text = "".join(self._fresh)
        self._fresh.clear()
        return text

    def result(self) -> Result:
        if self.beams is None:
            return self._result()
        found = [BeamResult(**vars(row._result()), score=row.score) for row in self.beams]
        return replace(found[0], beams=found)

    def _result(self) -> Result:
        return Result(
            text=self._text.shown,
            tokens=list(self.new),
            finish_reason=self.finish_reason or "unfinished",
            matched=self._text.matched if self._text.matched is not None else self._matched,
            prompt_tokens=self.given,
            cached_tokens=self.n_cached,
            logprobs=self.logprobs,
            top_logprobs=self.top_logprobs,
            state=self.kept,
        )
