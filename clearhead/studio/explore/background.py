"""Work that tells how far it is by a call, as a generator that can be closed in the middle."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Abandoned(Exception):
    """Nobody waits for the work any more."""


class Working(Generic[T]):
    """Runs `work(progress)` in a thread of its own. `steps()` gives the latest share done as it changes; closing it
    makes the next call of `progress` end the work. `result` is there once the steps have ended.
    """

    def __init__(self, work: Callable[[Callable[[float], None]], T]) -> None:
        self.result: T
        self._work = work
        self._share = 0.0
        self._changed = threading.Condition()
        self._fresh = self._ended = self._abandoned = False
        self._error: BaseException | None = None

    def steps(self) -> Iterator[float]:
        """Raises what the work raised."""
        thread = threading.Thread(target=self._run, name="studio work", daemon=True)
        thread.start()
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._fresh or self._ended)
                    if self._ended:
                        break
                    self._fresh, share = False, self._share
                yield share
        finally:
            self._abandoned = True
            thread.join()
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self.result = self._work(self._tell)
        except Abandoned:
            pass
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify()

    def _tell(self, share: float) -> None:
        if self._abandoned:
            raise Abandoned
        with self._changed:
            self._share, self._fresh = share, True
            self._changed.notify()
