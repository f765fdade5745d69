"""`clearhead chat SOURCE`: a conversation, a line at a time."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from clearhead.cli.options import Ending, Loading, OptionalText, Sampling, Source
from clearhead.errors import ClearheadError

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

Message = dict[str, str]


@dataclass(frozen=True, kw_only=True)
class Options:
    source: Source
    """A folder, a .gguf file, a name on the Hub, or a shipped model."""
    system: OptionalText = None
    """What the model is told before the conversation begins."""
    sampling: Sampling
    ending: Ending
    loading: Loading
    json: bool = False
    """Print each answer as one line of JSON."""


def run(options: Options) -> None:
    from clearhead.cli import console

    model = console.load(options.source, options.loading)
    if model.tokenizer is None or model.tokenizer.chat is None:
        raise ClearheadError(
            f"{options.source} has no chat template: it was made to continue texts, not to answer. "
            f'Use `clearhead generate {options.source} "..."`'
        )
    how = asdict(options.sampling) | asdict(options.ending)
    messages: list[Message] = [{"role": "system", "content": options.system}] if options.system else []
    for line in _lines():
        messages.append({"role": "user", "content": line})
        text = _answer(model, messages, how, shown=not options.json)
        messages.append({"role": "assistant", "content": text})
        if options.json:
            console.print_json(messages[-1])


def _answer(model: Transformer, messages: list[Message], how: dict[str, Any], shown: bool) -> str:
    """What the model says next. Ctrl-C cuts an answer short when a person is there to go on, and ends a pipe."""
    import clearhead

    assert model.tokenizer is not None
    assert model.tokenizer.chat is not None
    said = []
    try:
        for piece in clearhead.stream(model, model.tokenizer.chat.encode(messages), **how):
            said.append(str(piece))
            if shown:
                print(piece, end="", flush=True)
    except KeyboardInterrupt:
        if not sys.stdin.isatty():
            raise
    if shown:
        print()
    return "".join(said)


def _lines() -> Iterator[str]:
    """What the person types, until Ctrl-D; each line of a pipe. Empty lines are passed over."""
    if sys.stdin.isatty():
        import readline  # noqa: F401  (gives input() its editing and its history)

        print("Ctrl-C cuts an answer short, Ctrl-D ends the conversation.", file=sys.stderr)
    while True:
        try:
            line = input("> ") if sys.stdin.isatty() else sys.stdin.readline()
        except EOFError:
            print(file=sys.stderr)
            return
        if not line and not sys.stdin.isatty():
            return
        if line.strip():
            yield line.rstrip("\r\n")
