"""Processes that tokenise. Each is told its jobs a line at a time, and says a line at a time how far it is.

They are started as programs of their own rather than by `multiprocessing`, which would run the caller's script once
more in each, or copy a process that has threads.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event, Lock
from typing import Any

from clearhead.errors import ClearheadError


def run_jobs(orders: Sequence[dict[str, Any]], n: int, tell: Callable[[int], object]) -> None:
    """Have `n` processes do the jobs. `tell` is told how much was done.

    Raises:
        ClearheadError: what a job raised, or a process died; jobs that were done stay done.
    """
    left, lock, stop = list(reversed(orders)), Lock(), Event()
    workers = [Worker() for _ in range(n)]

    def work(worker: Worker) -> None:
        while not stop.is_set():
            with lock:
                if not left:
                    return
                order = left.pop()
            worker.do(order, tell)

    def guarded(worker: Worker) -> None:
        try:
            work(worker)
        except BaseException:
            stop.set()
            raise

    try:
        with ThreadPoolExecutor(n) as pool:
            try:
                for future in [pool.submit(guarded, worker) for worker in workers]:
                    future.result()
            except BaseException:
                stop.set()
                for worker in workers:
                    worker.process.kill()
                raise
    finally:
        for worker in workers:
            worker.close()


class Worker:
    """One process."""

    def __init__(self) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the process)
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path),
            "TOKENIZERS_PARALLELISM": "false",
            "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
        }
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "clearhead.training.data.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=environment,
            text=True,
        )

    def do(self, order: dict[str, Any], tell: Callable[[int], object]) -> None:
        """Have a job done."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(order) + "\n")
            self.process.stdin.flush()
        except OSError:
            raise self._died() from None
        for line in self.process.stdout:
            said = json.loads(line)
            if "error" in said:
                raise ClearheadError(said["error"])
            if said.get("finished"):
                return
            tell(said["done"])
        raise self._died()

    def _died(self) -> ClearheadError:
        code = self.process.wait()
        self.errors.seek(0)
        last = self.errors.read().decode(errors="replace").strip().rsplit("\n", 1)[-1]
        how = f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with {code}"
        return ClearheadError(
            f"a process that tokenises {how}{': ' + last if last else ''}. What was finished is kept: the same command "
            "goes on from there; with processes=1 it needs less memory"
        )

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.close()
        except OSError:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()


def main() -> None:
    """Do the jobs that standard input names."""
    # Ctrl-C goes to every process of the terminal; the one that started this one decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    from clearhead.training.data.documents import Corpus, Source
    from clearhead.training.data.shards import TOKENIZER, Part, tokenizer_from, write_shard

    # What libraries print goes where errors go.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**what: Any) -> None:
        print(json.dumps(what), file=answers, flush=True)

    tokenizer = None
    for line in sys.stdin:
        order = json.loads(line)
        folder = Path(order["folder"])
        try:
            if tokenizer is None:
                tokenizer = tokenizer_from(folder / TOKENIZER)
            said = order["corpus"]
            corpus = Corpus(**said | {"columns": tuple(said["columns"])})
            sources = {int(i): Source(**source) for i, source in order["sources"].items()}
            parts = [Part(**part) for part in order["parts"]]
            write_shard(corpus, sources, parts, tokenizer, folder, order["number"], lambda done: say(done=done))
        except ClearheadError as problem:
            say(error=str(problem))
        else:
            say(finished=True)


if __name__ == "__main__":
    main()
