"""What the Studio can be asked: named operations, from checked arguments to an answer.

An operation is a function of keyword-only arguments whose types say what is allowed, in pydantic's words:

    @operation("lesson.gradient")
    def gradient(*, factor: Annotated[float, Field(ge=0.5, le=1.5)] = 0.9) -> Answer: ...

One that needs a model or a run takes the `Studio` before the star. One that takes long is a generator: every answer it
yields is shown, and it is closed where nobody waits for the rest. While it waits for something itself it yields None,
which shows nothing and lets it be closed.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import ConfigDict, ValidationError, validate_call

from clearhead.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from clearhead.studio.context import Studio


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What an operation found."""

    data: Mapping[str, Any] = field(default_factory=dict)
    """Numbers, words and lists, as JSON has them. Numbers are not rounded: the page does that."""
    arrays: Mapping[str, Tensor | np.ndarray] = field(default_factory=dict)
    """Tensors by name, which travel in binary as float32, int32 or uint8."""
    python: str = ""
    """Code that prints `printed` by means of the library alone."""
    printed: tuple[float, ...] = ()
    """The numbers that `python` prints, in their order."""


@dataclass(frozen=True)
class Operation:
    """A function that can be asked by its name."""

    name: str
    ask: Callable[..., Answer | Iterator[Answer | None]]
    needs_studio: bool


OPERATIONS: dict[str, Operation] = {}
"""By name. Importing the modules of `lesson` and `explore` fills it (see `catalogue.py`)."""


def operation(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register a function under a name; calls of it are checked against its annotations from then on."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        if name in OPERATIONS:
            raise ValueError(f"there are two operations {name!r}")
        first = next(iter(inspect.signature(function).parameters.values()), None)
        needs = first is not None and first.kind is not inspect.Parameter.KEYWORD_ONLY
        if first is not None and needs:
            # The Studio is handed over by `ask`, never by a browser: nothing is checked about it.
            function.__annotations__[first.name] = Any
        checked = validate_call(config=ConfigDict(arbitrary_types_allowed=True))(function)
        OPERATIONS[name] = Operation(name, checked, needs)
        return checked

    return register


def ask(studio: Studio, name: str, args: Mapping[str, Any]) -> Answer | Iterator[Answer | None]:
    """Ask one operation.

    Raises:
        UsageError: there is no such operation, or an argument is unknown, missing or out of its range.
        ClearheadError: what the operation itself refuses.
    """
    if name not in OPERATIONS:
        near = difflib.get_close_matches(name, OPERATIONS, n=2)
        raise UsageError(f"there is no operation {name!r}{'; perhaps ' + ' or '.join(near) if near else ''}")
    found = OPERATIONS[name]
    try:
        return found.ask(studio, **args) if found.needs_studio else found.ask(**args)
    except ValidationError as problem:
        raise UsageError(f"{name}: {_told(problem)}") from None


def _told(problem: ValidationError) -> str:
    """What is wrong with which argument, in one line."""
    return "; ".join(
        f"{'.'.join(map(str, one['loc'])) or 'arguments'}: {one['msg'][:1].lower()}{one['msg'][1:]}"
        for one in problem.errors(include_url=False, include_input=False)
    )
