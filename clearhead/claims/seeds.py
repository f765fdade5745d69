"""One claim with one seed: measured once, and kept as a file, so that an interrupted run goes on where it was."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from clearhead.claims.catalogue import find, module_of
from clearhead.claims.claim import Measured
from clearhead.claims.code import code_of
from clearhead.claims.running import Bar, Measuring, is_since, no_bar
from clearhead.errors import ClearheadError
from clearhead.files import read_json, write_whole
from clearhead.training.report import versions


@dataclass(frozen=True, kw_only=True)
class Seed:
    """What one seed gave, and what it took."""

    seed: int
    measured: Measured
    seconds: float
    cpu_seconds: float
    date: str
    """When it was done, as ISO 8601 has it, in UTC."""
    made_with: Mapping[str, str]
    """Versions, and the machine."""
    code: str
    """See `code_of`."""


@dataclass(frozen=True, kw_only=True)
class Size:
    """How claims are measured, and where what they give is kept."""

    quick: bool = False
    folder: Path | None = None
    """None: nowhere."""
    since: float = 0.0
    """What was kept before this time (as `time.time` has it) does not count."""

    @property
    def kind(self) -> str:
        return "quick" if self.quick else "full"

    def file(self, name: str, seed: int) -> Path | None:
        """Where one seed of a claim is kept."""
        return None if self.folder is None else self.folder / name / "seeds" / f"{self.kind}-{seed}.json"


def kept_seed(name: str, seed: int, size: Size) -> Seed | None:
    """What was measured before by the code as it is now; None where nothing was."""
    file = size.file(name, seed)
    found = {} if file is None or not is_since(file, size.since) else read_json(file)
    return _read(found) if found.get("code") == code_of(module_of(name)) else None


def measure_seed(name: str, seed: int, size: Size, bar: Bar = no_bar) -> Seed:
    """Measure one seed, whatever is kept, and keep it."""
    # Before it is imported: a file that is changed meanwhile must not pass for what was measured.
    code = code_of(module_of(name))
    claim = find(name)
    folder = None if size.folder is None else size.folder / "kept"
    run = Measuring(seed=seed, quick=size.quick, folder=folder, since=size.since, progress=bar)
    with _threads(claim.cost.threads), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        start, cpu = time.perf_counter(), time.process_time()
        measured = claim.measure(run)
        seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
    done = Seed(
        seed=seed,
        measured=measured,
        seconds=seconds,
        cpu_seconds=cpu_seconds,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        made_with=versions(),
        code=code,
    )
    # What is drawn now is what would be drawn from the file: JSON has no tuples, and its keys are strings.
    content = json.dumps(asdict(done))
    if (file := size.file(name, seed)) is not None:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_whole(file, content.encode())
    return _read(json.loads(content))


def check_folder(folder: Path) -> None:
    """Raises ClearheadError when nothing can be written there: asked before the work, not after it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as problem:
        raise ClearheadError(
            f"{folder} can't be written to ({problem.strerror or problem}); name another folder with --out"
        ) from None


def _read(found: dict[str, Any]) -> Seed:
    values = {name: tuple(x) if isinstance(x, list) else x for name, x in found["measured"]["values"].items()}
    return Seed(**{**found, "measured": Measured(values=values, series=found["measured"]["series"])})


@contextmanager
def _threads(n: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)
