"""A bar on standard error for work that takes a while."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(what: str, total: float | None, show: bool | None = None) -> Iterator[Callable[[float], None]]:
    """What it gives is told how many more are done.

    Args:
        total: how many there are; None where nobody knows.
        show: whether it is seen; None is when a person watches.
    """
    if not (sys.stderr.isatty() if show is None else show) or total == 0:
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(console=console, transient=console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)
