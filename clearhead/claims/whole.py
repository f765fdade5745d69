"""Every claim at once: seeds side by side, each in a process of its own; what measures time, alone at the end."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, SpawnContext
from multiprocessing.process import BaseProcess
from pathlib import Path

from clearhead.claims import words
from clearhead.claims.ask import n_seeds
from clearhead.claims.catalogue import find
from clearhead.claims.display import Display
from clearhead.claims.extras import DRAWING, missing
from clearhead.claims.result import Result
from clearhead.claims.seeds import Size, check_folder, kept_seed
from clearhead.claims.worker import Job, collected, work
from clearhead.costs.units import in_seconds
from clearhead.errors import ClearheadError, UsageError
from clearhead.files import write_whole

QUICK_SECONDS, REPORT_SECONDS = 5.0, 1.0
"""About how long those take that nothing is known of."""
STEADY = 60.0
"""So many seconds that went as expected are taken into account when the rest is foretold."""
PRELOADED = ["clearhead.claims.worker", "clearhead.generation", "clearhead.lens.record", "matplotlib.figure"]
"""Imported once for all processes."""
TRACEBACK = "error.txt"


@dataclass(frozen=True)
class Outcome:
    """What became of a claim: its result, or why there is none."""

    name: str
    result: Result | None = None
    needs: str | None = None
    """What is not installed."""
    problem: str | None = None
    """What it ended with."""


def measure_all(
    names: Sequence[str],
    size: Size,
    *,
    seeds: int | None = None,
    jobs: int | None = None,
    display: Display,
) -> list[Outcome]:
    """Measure claims and write a report on each; what is kept in the folder is not measured again.

    Args:
        jobs: how many processes work at a time, of one thread each; None is one a processor.

    Raises:
        UsageError: no seed, or no process.
        ClearheadError: the folder can't be written to, or there is nothing to draw with.
    """
    assert size.folder is not None
    if jobs is not None and jobs < 1:
        raise UsageError(f"jobs is {jobs}; it must be 1 or more")
    if problem := missing([DRAWING]):
        raise ClearheadError(f"the figures of claims {problem}")
    check_folder(size.folder)
    needs = {name: lack for name in names if (lack := missing(find(name).cost.needs))}
    n = {name: n_seeds(find(name), size, seeds) for name in names if name not in needs}
    whole = _Whole(size, display, len(n))
    together, alone = (
        [job for name in n if find(name).cost.alone is is_alone for job in _jobs(name, size, n[name])]
        for is_alone in (False, True)
    )
    with _one_thread():
        whole.run(together, at_once=jobs or os.cpu_count() or 1, later=alone)
        whole.run(alone, at_once=1)
    return [Outcome(name, whole.results.get(name), needs.get(name), whole.problems.get(name)) for name in names]


def _jobs(name: str, size: Size, n: int) -> list[Job]:
    """What is to be measured of a claim; where all is there, only its report is left."""
    found = [Job(name, seed, n, size) for seed in range(n) if kept_seed(name, seed, size) is None]
    return found or [Job(name, None, n, size)]


def _expected(job: Job) -> float:
    """Seconds, about."""
    if job.seed is None:
        return REPORT_SECONDS
    claim = find(job.name)
    return QUICK_SECONDS if job.size.quick else 60 * claim.cost.minutes / claim.seeds


@contextmanager
def _one_thread() -> Iterator[None]:
    """For processes that begin meanwhile: some libraries count processors when they are imported."""
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before


@dataclass
class _Running:
    """A piece of work in its process."""

    job: Job
    process: BaseProcess
    begun: float = field(default_factory=time.monotonic)


class _Whole:
    """The work that goes on, and what has come of it."""

    def __init__(self, size: Size, display: Display, n_claims: int) -> None:
        self.results: dict[str, Result] = {}
        self.problems: dict[str, str] = {}
        self._folder = size.folder or Path()
        self._display = display
        self._n_claims = n_claims
        self._context = _context()
        self._running: dict[Connection, _Running] = {}
        self._left: dict[str, int] = {}
        """Seeds of each claim that are not measured yet."""
        self._spent = self._expected = 0.0
        """Seconds that what is over took, and was expected to take."""

    def run(self, jobs: Sequence[Job], *, at_once: int, later: Sequence[Job] = ()) -> None:
        """Do all of it, the longest first, so many at once. later: what comes after it, one by one."""
        waiting = sorted(jobs, key=_expected, reverse=True)
        self._left = Counter(job.name for job in jobs if job.seed is not None)
        try:
            while waiting or self._running:
                while waiting and len(self._running) < at_once:
                    self._start(waiting.pop(0))
                self._show(waiting, at_once, later)
                for connection in wait(list(self._running), timeout=1):
                    assert isinstance(connection, Connection)
                    waiting = self._hear(connection, waiting)
        finally:
            self._stop()

    def _start(self, job: Job) -> None:
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=work, args=(theirs, job))
        process.start()
        theirs.close()
        self._running[ours] = _Running(job, process)
        self._display.set(job.row, 0, _expected(job))

    def _hear(self, connection: Connection, waiting: list[Job]) -> list[Job]:
        """What a process says; and what is waiting from then on."""
        job = self._running[connection].job
        try:
            kind, *said = connection.recv()
        except (EOFError, OSError):
            kind, said = "ended", []
        if kind == "told":
            self._display.tells(job.row)(*said)
            return waiting
        running = self._running.pop(connection)
        connection.close()
        running.process.join()
        self._display.over(job.row)
        self._spent += time.monotonic() - running.begun
        self._expected += _expected(job)
        if kind != "done":
            text, where = said or (f"its process ended with exit code {running.process.exitcode}", "")
            self._fail(job.name, text, where)
            return [other for other in waiting if other.name != job.name]
        if job.seed is None:
            self._conclude(job)
            return waiting
        self._left[job.name] -= 1
        is_last = not self._left[job.name] and job.name not in self.problems
        return [replace(job, seed=None), *waiting] if is_last else waiting

    def _conclude(self, job: Job) -> None:
        try:
            result = collected(job)
        except ClearheadError as problem:
            self._fail(job.name, str(problem), "")
            return
        self.results[job.name] = result
        (self._folder / job.name / TRACEBACK).unlink(missing_ok=True)
        self._display.say(f"{words.sign(result.verdict)} {job.name}: {result.verdict} ({in_seconds(result.seconds)})")

    def _fail(self, name: str, text: str, where: str) -> None:
        self.problems[name] = text
        folder = self._folder / name
        folder.mkdir(exist_ok=True)
        write_whole(folder / TRACEBACK, (where or text).encode())
        self._display.say(f"! {name}: {text}")

    def _show(self, waiting: Sequence[Job], at_once: int, later: Sequence[Job]) -> None:
        """How many are done, and how long the rest takes if it goes on as it went so far."""
        pace = (self._spent + STEADY) / (self._expected + STEADY)
        now = time.monotonic()
        begun = sum(max(0.0, pace * _expected(one.job) - (now - one.begun)) for one in self._running.values())
        left = (begun + pace * sum(map(_expected, waiting))) / at_once + pace * sum(map(_expected, later))
        done = len(self.results) + len(self.problems)
        self._display.set("all claims", done, self._n_claims, f"{done} of {self._n_claims}, {in_seconds(left)} left")

    def _stop(self) -> None:
        """End what still runs: a process whose connection is gone ends itself."""
        for connection in self._running:
            connection.close()
        for running in self._running.values():
            running.process.join(timeout=5)
            running.process.kill()
        self._running.clear()


def _context() -> ForkServerContext | SpawnContext:
    """Where it can be, processes are forked from one that has imported all that they need and done nothing else."""
    if "forkserver" not in multiprocessing.get_all_start_methods():
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    return context
