"""A quick run of a claim in a process of its own: it draws its own random numbers, and can be ended at any moment.

The process (`python -m clearhead.studio.measuring NAME`) writes a line of JSON for all that it tells, and ends when its
standard input is closed: with the server, whatever ends that.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import IO, Any

from clearhead.errors import ClearheadError

MAX_SECONDS = 180.0
"""Quick runs are made to take under 30 on an idle machine."""
PAUSE = 0.25

Told = tuple[str, int, int]
"""What is going on, how many steps of it are done, and of how many."""

_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Measurement:
    """A result as JSON has it (`Result.to_json`), and its figure as SVG, or why there is none."""

    result: dict[str, Any]
    figure: str | None
    no_figure: str | None = None


def measured(name: str) -> Iterator[Told | Measurement | None]:
    """Measure a claim with one seed. Yields what is told of it, None while nothing is, and the measurement at the end;
    closing the iterator ends the process.

    Raises:
        ClearheadError: another is being measured, it took too long, or it ended with an error, which the message has.
    """
    if not _one_at_a_time.acquire(blocking=False):
        raise ClearheadError("another claim is being measured; wait for it, or stop it")
    try:
        yield from _run(name)
    finally:
        _one_at_a_time.release()


def _run(name: str) -> Iterator[Told | Measurement | None]:
    process = subprocess.Popen(
        [sys.executable, "-m", __name__, name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    lines: queue.Queue[str | None] = queue.Queue()
    assert process.stdout is not None and process.stdin is not None
    threading.Thread(target=_read, args=(process.stdout, lines), daemon=True).start()
    end = time.monotonic() + MAX_SECONDS
    try:
        yield ("starting", 0, 1)
        while True:
            try:
                line = lines.get(timeout=PAUSE)
            except queue.Empty:
                if time.monotonic() > end:
                    again = f"clearhead claim {name} --quick"
                    raise ClearheadError(
                        f"{name} was stopped after {MAX_SECONDS:.0f} s; measure it with: {again}"
                    ) from None
                yield None
                continue
            if line is None:
                raise ClearheadError(f"the process that measured {name} ended with code {process.wait(5)}")
            told = json.loads(line)
            if "failed" in told:
                raise ClearheadError(f"{name} could not be measured: {told['failed']}")
            if "result" in told:
                yield Measurement(**told)
                return
            what, done, total = told["told"]
            yield (what, done, total)
    finally:
        process.kill()
        process.wait()
        process.stdin.close()


def _read(stream: IO[str], lines: queue.Queue[str | None]) -> None:
    with stream:
        for line in stream:
            lines.put(line)
    lines.put(None)


# ---- in the process


def main(name: str) -> None:
    """Measure, draw, and tell of it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches it too; the server ends it
    threading.Thread(target=_end_with_the_server, daemon=True).start()
    # What a library prints is no line of ours.
    tells, sys.stdout = sys.stdout, sys.stderr

    def tell(**told: Any) -> None:
        print(json.dumps(told), file=tells, flush=True)

    try:
        tell(**asdict(_measure(name, lambda *said: tell(told=said))))
    except Exception as problem:
        kind = "" if isinstance(problem, ClearheadError) else f"{type(problem).__name__}: "
        tell(failed=f"{kind}{str(problem)[:500]}")


def _measure(name: str, tell: Any) -> Measurement:
    from clearhead.claims.catalogue import find
    from clearhead.claims.extras import DRAWING, missing
    from clearhead.claims.result import Result
    from clearhead.claims.running import bar_that_tells
    from clearhead.claims.seeds import Size, measure_seed

    seed = measure_seed(name, 0, Size(quick=True), bar_that_tells(tell))
    result = Result(name, find(name), True, (seed,))
    problem = missing([DRAWING])
    return Measurement(
        result.to_json(), None if problem else result.svg(), f"the figure {problem}" if problem else None
    )


def _end_with_the_server() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
