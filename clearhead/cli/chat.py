"""`clearhead chat SOURCE`: a conversation, a line at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from clearhead.cli.options import Ending, Loading, OptionalText, Sampling, Source, given
from clearhead.errors import ClearheadError

if TYPE_CHECKING:
    from clearhead.generation.kept import Kept
    from clearhead.model.transformer import Transformer


# An answer may be longer than a continuation.
ENDING = Ending(max_new_tokens=1024)


@dataclass(frozen=True, kw_only=True)
class Options:
    source: Source
    """A folder, a .gguf file, a name on the Hub, or a shipped model."""
    system: OptionalText = None
    """What the model is told before the conversation begins."""
    sampling: Sampling
    ending: Ending = ENDING
    loading: Loading
    json: bool = False
    """Print each answer as one line of JSON."""


def run(options: Options) -> None:
    from clearhead.cli import console

    how = given(options.sampling, options.ending)
    model = console.load(options.source, options.loading, how)
    if model.tokenizer is None or model.tokenizer.chat is None:
        raise ClearheadError(
            f"{options.source} has no chat template: it was made to continue texts, not to answer. "
            f'Use `clearhead generate {options.source} "..."`'
        )
    conversation = Conversation(model, how, options.system)
    for line in _lines():
        for piece in conversation.say(line):
            if not options.json:
                print(piece, end="", flush=True)
        if options.json:
            console.print_json(conversation.messages[-1])
        else:
            print()


class Conversation:
    """What was said, and the model's memory of it, so that a turn reads only what is new."""

    def __init__(self, model: Transformer, how: dict[str, Any], system: str | None = None) -> None:
        self.messages = [{"role": "system", "content": system}] if system else []
        self._model = model
        self._how = how
        self._kept: Kept | None = None

    def say(self, text: str) -> Iterator[str]:
        """The answer, piece by piece. Ctrl-C cuts it short where a person is there to go on, and ends a pipe."""
        import clearhead

        self.messages.append({"role": "user", "content": text})
        tokens = self._model.tokenizer.chat.encode(self.messages)
        new = self._kept.back_to(tokens) if self._kept is not None else None
        state, self._kept = self._kept if new is not None else None, None
        stream = clearhead.stream(self._model, tokens if new is None else new, state=state, keep=True, **self._how)
        try:
            yield from stream
            self._kept = stream.result.state
        except KeyboardInterrupt:
            if not sys.stdin.isatty():
                raise
        self.messages.append({"role": "assistant", "content": stream.result.text})


def _lines() -> Iterator[str]:
    """What the person types, until Ctrl-D; each line of a pipe. Empty lines are passed over."""
    at_terminal = sys.stdin.isatty()
    if at_terminal:
        import readline  # noqa: F401  (gives input() its editing and its history)

        print("Ctrl-C cuts an answer short, Ctrl-D ends the conversation.", file=sys.stderr)
    while True:
        try:
            line = input("> ") if at_terminal else sys.stdin.readline()
        except EOFError:
            print(file=sys.stderr)
            return
        except UnicodeDecodeError:
            raise ClearheadError("standard input is not UTF-8 text; convert it first") from None
        if not line and not at_terminal:
            return
        if line.strip():
            yield line.rstrip("\r\n")
