"""One piece of work of `clearhead claim --all`, in a process of its own: a seed of a claim, or the report on one."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType

from clearhead.claims.catalogue import find
from clearhead.claims.report import write
from clearhead.claims.result import Result
from clearhead.claims.running import bar_that_tells
from clearhead.claims.seeds import Size, kept_seed, measure_seed
from clearhead.errors import ClearheadError


@dataclass(frozen=True)
class Job:
    """A seed of a claim; with None, its report on all of them."""

    name: str
    seed: int | None
    n_seeds: int
    size: Size

    @property
    def row(self) -> str:
        """What it is called on the screen."""
        if self.seed is None:
            return f"{self.name}: report"
        return self.name if self.n_seeds == 1 else f"{self.name}, seed {self.seed + 1} of {self.n_seeds}"


def work(connection: Connection, job: Job) -> None:
    """Do it, and tell of it: ("told", what, done, total), at the end ("done",) or ("failed", text, traceback)."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process; the first one ends the others
    signal.signal(signal.SIGTERM, _leave)
    threading.Thread(target=_watch, args=(connection,), daemon=True).start()
    try:
        if job.seed is None:
            write(collected(job), _folder(job))
        else:
            tell = bar_that_tells(lambda *said: connection.send(("told", *said)))
            measure_seed(job.name, job.seed, job.size, tell)
        connection.send(("done",))
    except Exception as problem:
        kind = "" if isinstance(problem, ClearheadError) else f"{type(problem).__name__}: "
        with suppress(OSError):  # where the other end is gone, nobody is left to be told
            connection.send(("failed", f"{kind}{problem}", traceback.format_exc()))


def collected(job: Job) -> Result:
    """The result of seeds that are all kept.

    Raises:
        ClearheadError: one is not there.
    """
    kept = [kept_seed(job.name, seed, job.size) for seed in range(job.n_seeds)]
    seeds = tuple(seed for seed in kept if seed is not None)
    if len(seeds) < job.n_seeds:
        raise ClearheadError("its code was changed, or its seeds removed, while it was measured; measure it again")
    return Result(job.name, find(job.name), job.size.quick, seeds)


def _folder(job: Job) -> Path:
    assert job.size.folder is not None
    return job.size.folder / job.name


def _watch(connection: Connection) -> None:
    """Nothing is ever sent this way: what comes is that the other end is gone."""
    try:
        connection.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)


def _leave(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)  # an exception, so that no half-written file is left
