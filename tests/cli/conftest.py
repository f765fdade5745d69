"""A model that costs nothing, so that the command line is tested by itself."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

import clearhead


@dataclass
class Calls:
    """What the verbs asked of the library."""

    loaded: list[dict[str, Any]] = field(default_factory=list)
    asked: list[tuple[Any, dict[str, Any]]] = field(default_factory=list)
    tokenizer: Any = None
    kept: Any = field(default_factory=lambda: SimpleNamespace(back_to=lambda tokens: tokens[1:]))


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Stand-ins for load, generate and stream, which note what they are asked for."""
    seen = Calls()

    def load(source: str, **how: Any) -> Any:
        seen.loaded.append({"source": source, **how})
        return SimpleNamespace(tokenizer=seen.tokenizer)

    class Pieces:
        result = SimpleNamespace(text=" one two", state=seen.kept)

        def __iter__(self) -> Iterator[str]:
            return iter((" one", " two"))

    def stream(model: Any, prompt: Any, **how: Any) -> Pieces:
        seen.asked.append((prompt, how))
        return Pieces()

    def generate(model: Any, prompt: Any, **how: Any) -> Any:
        seen.asked.append((prompt, how))
        return SimpleNamespace(
            text=" one two", tokens=[3, 4], finish_reason="length", logprobs=[-0.5, -0.25], prompt_tokens=[1, 2]
        )

    for stand_in in (load, stream, generate):
        monkeypatch.setitem(vars(clearhead), stand_in.__name__, stand_in)
    return seen


@pytest.fixture
def stdin(monkeypatch: pytest.MonkeyPatch) -> Callable[[bytes], None]:
    """Call it with what standard input should hold."""

    def hold(data: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))

    return hold
