"""One side of a comparison, in a process of its own: it is asked, and answers, by a line of JSON each way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any

MISSING = 3
"""The exit code of a worker whose library is not installed."""


class NotInstalledError(Exception):
    """A library is missing."""


class Worker:
    """`python -m MODULE ARGUMENTS...`; the first thing it says is `made`."""

    def __init__(
        self, module: str, arguments: Sequence[str], n_threads: int, environment: Mapping[str, str] | None = None
    ) -> None:
        # What it says on the way goes to a file: nobody reads it until it has ended, and a pipe would be full by then.
        self._said = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(n_threads), "HF_HUB_OFFLINE": "1", **(environment or {})},
        )
        self.made = self.answer()

    def ask(self, **request: Any) -> dict[str, Any]:
        """Ask, and wait for the answer."""
        self.begin(**request)
        return self.answer()

    def begin(self, **request: Any) -> None:
        """Ask, and don't wait."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """The next answer.

        Raises:
            NotInstalledError: the library is missing.
            SystemExit: the process ended for another reason, which is told.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if line:
            answer: dict[str, Any] = json.loads(line)
            return answer
        self._process.communicate()
        self._said.seek(0)
        said = self._said.read().strip()
        if self._process.returncode == MISSING:
            raise NotInstalledError(said.splitlines()[-1])
        sys.exit(f"a worker ended early, with code {self._process.returncode}:\n{said}")

    def close(self) -> None:
        """End it."""
        self._process.communicate()
        self._said.close()
