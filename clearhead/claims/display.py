"""What is seen while claims are measured: a bar for each, and one for all; without a terminal, a line for each."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

from clearhead.claims.running import Told

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

REFRESHES = 2
"""A second: watching is not to slow down what is measured."""


class Display:
    """On standard error. Used as a context."""

    def __init__(self, show: bool | None = None) -> None:
        """show: whether anything is seen; None is bars when a person watches, else lines."""
        self._watched = sys.stderr.isatty() if show is None else show
        self._quiet = show is False
        self._progress: Progress | None = None
        self._rows: dict[str, TaskID] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if self._watched:
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            said, note = (
                TextColumn("{task.description}", markup=False),
                TextColumn("{task.fields[note]}", style="dim", markup=False),
            )
            console = Console(stderr=True)
            self._progress = self._stack.enter_context(
                Progress(said, BarColumn(), note, console=console, transient=True, refresh_per_second=REFRESHES)
            )
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def tells(self, row: str) -> Told:
        """What a bar of that name is told with (see `running.bar_that_tells`)."""
        return lambda what, done, total: self.set(row, done, total, f"{what} {done:,} of {total:,}")

    def set(self, row: str, done: float, total: float, note: str = "") -> None:
        """How far something is; its row is there from the first time on."""
        if self._progress is not None:
            if row not in self._rows:
                self._rows[row] = self._progress.add_task(row, note="", total=None)
            self._progress.update(self._rows[row], completed=done, total=total, note=note)

    def over(self, row: str) -> None:
        """Its row goes."""
        if self._progress is not None and row in self._rows:
            self._progress.remove_task(self._rows.pop(row))

    def say(self, line: str) -> None:
        """A line that stays, as it is: brackets in it are no markup."""
        if self._progress is not None:
            self._progress.console.print(line, soft_wrap=True, highlight=False, markup=False, emoji=False)
        elif not self._quiet:
            print(line, file=sys.stderr, flush=True)
