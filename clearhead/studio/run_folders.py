"""Folders of training runs: which there are below those that were named, and what lies in each."""

from __future__ import annotations

import base64
import json
import math
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch

from clearhead.checkpoints.own import SNAPSHOTS
from clearhead.errors import UsageError
from clearhead.training.checkpoint import NAME, STATE, checkpoints
from clearhead.training.report import REPORT
from clearhead.training.showing import SAMPLES
from clearhead.training.watch import METRICS

MAX_BYTES = 32 << 20
"""Of a run's metrics, and of what else is read."""
MAX_TEXT = 20_000
"""Characters of a sample that are shown."""
KEPT = re.compile(r"(step-\d{6,}|snapshot-\d{4})", re.ASCII)
"""What weights along a run are called here, after its name and an @."""


@dataclass(frozen=True)
class Kept:
    """Weights along a run: a checkpoint, of which only the newest stay, or a snapshot, which all do."""

    name: str
    kind: Literal["checkpoint", "snapshot"]
    step: int | None
    """None where nothing says so yet: a snapshot of a run that has written no checkpoint."""
    path: Path


@dataclass(frozen=True)
class RunFolder:
    """One run."""

    id: str
    path: Path

    def metrics(self) -> list[dict[str, float]]:
        """The lines of its metrics that are whole; a line that is being written is none yet."""
        try:
            with (self.path / METRICS).open("rb") as file:
                content = file.read(MAX_BYTES)
        except OSError:
            return []
        found = []
        for line in content.split(b"\n"):
            try:
                values = json.loads(line)
            except (ValueError, UnicodeDecodeError):
                continue
            if isinstance(values, dict) and isinstance(values.get("step"), int):
                found.append({name: x for name, x in values.items() if _is_number(x)})
        return found

    def written(self) -> float:
        """When its metrics were last written, as `time.time` has it; 0 before."""
        return _modified(self.path / METRICS)

    def stamp(self) -> tuple[float, ...]:
        """Changes when something new can be told of the run."""
        inside = (METRICS, REPORT, SAMPLES, SNAPSHOTS)
        return (_modified(self.path), *(_modified(self.path / name) for name in inside))

    def is_finished(self) -> bool:
        """Whether it has written its report, and has not gone on since."""
        done = _modified(self.path / REPORT)
        return done > 0 and done >= self.written() - 1

    def report(self) -> dict[str, Any]:
        """What it measured at its end; empty before."""
        found = _json(self.path / REPORT)
        return found if isinstance(found, dict) else {}

    def config(self) -> dict[str, Any]:
        """Its config in plain values, from its report or its newest checkpoint; empty where there is neither yet."""
        found = self.report().get("config")
        if isinstance(found, dict):
            return found
        kept = checkpoints(self.path)
        return _config_in(kept[-1][1] / STATE, _modified(kept[-1][1] / STATE)) if kept else {}

    def steps(self) -> int | None:
        """How many steps it is to make."""
        found = self.config().get("run", {})
        steps = found.get("steps") if isinstance(found, dict) else None
        return steps if isinstance(steps, int) else None

    def kept(self) -> list[Kept]:
        """Weights along it, by step."""
        every = self.config().get("every", {})
        planned = every.get("snapshots", []) if isinstance(every, dict) else []
        steps = sorted(step for step in planned if isinstance(step, int))
        found = [Kept(path.name, "checkpoint", step, path) for step, path in checkpoints(self.path)]
        inside = self.path / SNAPSHOTS
        for path in sorted(inside.iterdir()) if inside.is_dir() else ():
            if re.fullmatch(r"\d{4}", path.name, re.ASCII) and (path / "config.json").is_file():
                number = int(path.name)
                step = steps[number] if number < len(steps) else None
                found.append(Kept(f"snapshot-{path.name}", "snapshot", step, path))
        # Of two of one step, the snapshot: it stays.
        by_step = {kept.step if kept.step is not None else kept.name: kept for kept in found}
        return sorted(by_step.values(), key=lambda kept: (-1 if kept.step is None else kept.step, kept.name))

    def samples(self) -> list[int]:
        """The steps at which it showed what the model does with held-out data."""
        try:
            found = [re.fullmatch(r"step-(\d{6,})\.txt", path.name) for path in (self.path / SAMPLES).iterdir()]
        except OSError:
            return []
        return sorted(int(match[1]) for match in found if match)

    def sample(self, step: int) -> tuple[str, str | None]:
        """The sample of a step as text, and its map of attention as a data: URL, where there is one.

        Raises:
            UsageError: there is no sample of that step.
        """
        stem = self.path / SAMPLES / f"step-{step:06d}"
        try:
            text = stem.with_suffix(".txt").read_text(encoding="utf-8", errors="replace")[:MAX_TEXT]
        except OSError:
            raise UsageError(f"{self.id} has no sample of step {step:,}") from None
        for ending, kind in ((".svg", "svg+xml"), (".png", "png")):
            path = stem.with_suffix(ending)
            if path.is_file() and path.stat().st_size <= MAX_BYTES // 8:
                return text, f"data:image/{kind};base64,{base64.b64encode(path.read_bytes()).decode()}"
        return text, None


class RunFolders:
    """The runs below some folders. Safe to use from several threads."""

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        self.folders = tuple(folders)
        self._ids: dict[Path, str] = {}
        self._lock = threading.Lock()

    def all(self) -> list[RunFolder]:
        """Every run: a folder that was named, one in it, or a stage of one in it. The one written last stands first."""
        found: dict[Path, RunFolder] = {}
        for folder in self.folders:
            for path in (folder, *_inside(folder), *(deeper for one in _inside(folder) for deeper in _inside(one))):
                if path not in found and (path / METRICS).is_file():
                    found[path] = RunFolder(self._id_of(folder, path), path)
        return sorted(found.values(), key=lambda run: -run.written())

    def get(self, id: str) -> RunFolder:
        """The run of an id.

        Raises:
            UsageError: there is none.
        """
        runs = self.all()
        for run in runs:
            if run.id == id:
                return run
        known = f"there are {', '.join(run.id for run in runs[:20])}" if runs else "name its folder with --runs"
        raise UsageError(f"there is no run {id[:60]!r}; {known}")

    def kept(self, id: str) -> Kept | None:
        """The weights that `RUN@step-000200` or `RUN@snapshot-0003` stands for; None where it stands for none."""
        run, at, name = id.partition("@")
        if not at or not KEPT.fullmatch(name) or run not in {one.id for one in self.all()}:
            return None
        return next((kept for kept in self.get(run).kept() if kept.name == name), None)

    def _id_of(self, folder: Path, path: Path) -> str:
        """A short name that no other run has, and that stays."""
        with self._lock:
            if path not in self._ids:
                parts = path.relative_to(folder).parts or (path.name,)
                slug = re.sub(r"[^a-z0-9.-]+", "-", "-".join(parts).lower()).strip("-.")[:60] or "run"
                taken, number = slug, 1
                while taken in self._ids.values():
                    taken, number = f"{slug}-{number + 1}", number + 1
                self._ids[path] = taken
            return self._ids[path]


def seconds_since(moment: float) -> float:
    """How long ago that was."""
    return max(0.0, time.time() - moment)


def _inside(folder: Path) -> list[Path]:
    """The folders in a folder that can hold runs."""
    try:
        return sorted(path for path in folder.iterdir() if path.is_dir() and not _is_part_of_a_run(path.name))[:500]
    except OSError:
        return []


def _is_part_of_a_run(name: str) -> bool:
    return name.startswith(".") or name in ("data", "tensorboard", SAMPLES, SNAPSHOTS) or bool(NAME.fullmatch(name))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8")) if path.stat().st_size <= MAX_BYTES else None
    except (OSError, ValueError, RecursionError):
        return None


@lru_cache(maxsize=64)
def _config_in(state: Path, modified: float) -> dict[str, Any]:
    """The config in a checkpoint's state, whose tensors stay on the disk. modified: so that a new file is read anew."""
    try:
        found = torch.load(state, mmap=True, map_location="cpu", weights_only=True).get("config")
    except Exception:  # damaged files raise whatever the unpickler stumbles over
        return {}
    return found if isinstance(found, dict) else {}
