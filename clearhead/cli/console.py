"""What verbs do with the terminal: read a prompt, show that work goes on, print JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.errors import ClearheadError, UsageError

if TYPE_CHECKING:
    from clearhead.cli.options import Loading
    from clearhead.model.transformer import Transformer


def prompt_or_stdin(prompt: str) -> str:
    """The prompt itself; for "-", all of standard input less one newline at its end. An empty one is refused."""
    text = _stdin() if prompt == "-" else prompt
    if not text:
        raise ClearheadError("the prompt is empty; give at least one word")
    return text


def _stdin() -> str:
    if sys.stdin.isatty():
        raise UsageError('no prompt: give one after SOURCE, or pipe it in, as in `echo "Once upon" | clearhead ...`')
    try:
        return sys.stdin.buffer.read().decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise ClearheadError(f"standard input is not UTF-8 text (byte {error.start}); convert it first") from None


def read_lines(name: str) -> list[str]:
    """The lines of a text file, or of standard input for "-". A newline at the end begins no line."""
    if name == "-":
        text = _stdin()
    else:
        try:
            text = Path(name).expanduser().read_bytes().decode("utf-8-sig").removesuffix("\n")
        except UnicodeDecodeError as error:
            raise ClearheadError(f"{name} is not UTF-8 text (byte {error.start}); convert it first") from None
        except OSError as error:
            raise ClearheadError(f"{name} can't be read: {error.strerror}") from None
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if not any(line.strip() for line in lines):
        raise ClearheadError(f"{'standard input' if name == '-' else name} has no text in it; give at least one line")
    return lines


@contextmanager
def busy(what: str) -> Iterator[None]:
    """A spinner on standard error while something takes time, when a person is watching."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(what):
        yield


def import_torch() -> None:
    """The one long import. Ctrl-C meanwhile ends the program at once: inside an import, an exception could come out as
    any other, or break a library that was half imported. Nothing has been written yet.
    """

    def leave(*_: object) -> None:
        os.write(2, b"\x1b[?25h\n" if sys.stderr.isatty() else b"\n")  # the spinner hides the cursor
        os._exit(130)

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        import torch

        return
    signal.signal(signal.SIGINT, leave)
    try:
        import torch  # noqa: F401
    finally:
        signal.signal(signal.SIGINT, before)


def load(source: str, how: Loading, asked: Mapping[str, Any] | None = None) -> Transformer:
    """The model, with a spinner while torch starts and the weights are read. `asked`: options of `generate`, which
    are checked first; a model that only writes keeps its weights as a GGUF file has them.
    """
    from clearhead.cli.options import rope_scaling

    with busy(f"loading {source}"):
        import_torch()
        import clearhead
        from clearhead.generation.options import check

        check(asked or {})
        _check_device(how.device)
        rope: dict[str, Any] = {} if how.rope is None else {"rope": rope_scaling(how.rope)}
        weights = how.weights or ("plain" if asked is None else "auto")
        model: Transformer = clearhead.load(source, dtype=how.dtype, device=how.device, weights=weights, **rope)
    return model


def _check_device(name: str) -> None:
    """Put nothing at all on the device: whatever is wrong with it shows before anything is read."""
    if name == "cpu":
        return
    import torch

    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ClearheadError(f"the device {name!r} can't be used here ({str(error).splitlines()[0]})") from None


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(value, ensure_ascii=False, allow_nan=False))
