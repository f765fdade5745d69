"""What a claim is given to measure with: its seed, a bar, and a place for what several claims train."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
from filelock import FileLock

from clearhead.claims.code import PACKAGE, code_of
from clearhead.files import into_place

T = TypeVar("T")
Bar = Callable[[int, str], Callable[[], None]]
Told = Callable[[str, int, int], None]
"""What is going on, how many steps of it are done, and of how many."""


def is_since(path: Path, moment: float) -> bool:
    """Whether there is such a file, and written after that moment."""
    return path.exists() and path.stat().st_mtime >= moment


def no_bar(total: int, what: str) -> Callable[[], None]:
    """A progress bar that nobody sees."""
    return lambda: None


def bar_that_tells(tell: Told, every: float = 0.2) -> Bar:
    """A bar whose steps `tell` hears of, at most every so many seconds."""

    def bar(total: int, what: str) -> Callable[[], None]:
        done, last = 0, time.monotonic()
        tell(what, 0, total)

        def tick() -> None:
            nonlocal done, last
            done += 1
            if done == total or time.monotonic() - last >= every:
                last = time.monotonic()
                tell(what, done, total)

        return tick

    return bar


@dataclass(frozen=True)
class Measuring:
    """What a claim is given to measure with (see `claim.Run`)."""

    seed: int
    quick: bool
    folder: Path | None = None
    """Where `kept` keeps; None for nowhere."""
    since: float = 0.0
    """What was kept before this time does not count."""
    progress: Bar = field(default=no_bar)

    def kept(self, name: str, make: Callable[[], T]) -> T:
        """See `claim.Run`. What other code made does not count, and of two processes one makes it while one waits."""
        if self.folder is None:
            return make()
        kind = "quick" if self.quick else "full"
        path = self.folder / f"{name}-{kind}-{self.seed}-{_code_behind(make)}.pt"
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_suffix(".lock")):
            if is_since(path, self.since):
                there: T = torch.load(path, weights_only=False)
                return there
            made = make()
            into_place(path, lambda temporary: torch.save(made, temporary))
        return made


def _code_behind(make: Callable[[], Any]) -> str:
    """The hash of the module where `make` was written."""
    while isinstance(make, partial):
        make = make.func
    module = inspect.getmodule(make)
    return code_of(module.__name__) if module is not None and module.__name__.startswith(f"{PACKAGE}.") else "other"
