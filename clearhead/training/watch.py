"""What a run shows: a bar or lines on standard error, `metrics.jsonl`, and TensorBoard where it is installed."""

from __future__ import annotations

import importlib.util
import json
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from clearhead.errors import ClearheadError
from clearhead.training.data.shards import write_atomically

if TYPE_CHECKING:
    from clearhead.training.trainer import Step

METRICS = "metrics.jsonl"


class Watch:
    """Tells of a run as it goes. A line of metrics every `every` steps; its loss is the mean since the last line."""

    def __init__(self, folder: Path, steps: int, *, first: int = 0, every: int = 10, quiet: bool = False) -> None:
        self.path = folder / METRICS
        self.folder, self.steps, self.every, self.quiet = folder, steps, every, quiet
        self.since: list[Step] = []
        self.first = first
        self.started = self.last = time.perf_counter()
        self.bar: Any = None
        self.board: Any = None

    def __enter__(self) -> Self:
        _cut(self.path, self.first)
        if importlib.util.find_spec("tensorboard") is not None:
            from torch.utils.tensorboard import SummaryWriter

            self.board = SummaryWriter(str(self.folder / "tensorboard"), purge_step=self.first + 1)
        if not self.quiet and sys.stderr.isatty():
            self.bar = _bar(self.steps, self.first)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.stop()
        if self.board is not None:
            self.board.close()

    def step(self, step: Step) -> None:
        """Tell of a step."""
        self.since.append(step)
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=step.number, loss=step.loss, lr=step.lr)
        if step.number == self.steps or (self.every and step.number % self.every == 0):
            self._line()

    def _line(self) -> None:
        now, last = time.perf_counter(), self.since[-1]
        n_targets = sum(step.n_targets for step in self.since)
        rate = sum(step.n_slots for step in self.since) / max(now - self.last, 1e-9)
        values = {
            "loss": sum(step.loss * step.n_targets for step in self.since) / n_targets,
            "lr": last.lr,
            "norm": last.norm,
            "tokens_per_second": rate,
        }
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], rate=rate)
        left = (now - self.started) / max(last.number - self.first, 1) * (self.steps - last.number)
        self._say(
            f"step {last.number:>{len(str(self.steps))}} of {self.steps}  loss {values['loss']:.4f}  "
            f"lr {last.lr:.2e}  {rate:,.0f} tokens/s  {_clock(left)} left"
        )
        self.last, self.since = now, []
        self.metrics(last.number, **values)

    def metrics(self, step: int, **values: float) -> None:
        """Write numbers of a step down."""
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"step": step, **values}) + "\n")
        except OSError as problem:
            raise ClearheadError(f"{self.path} can't be written: {problem.strerror or problem}") from problem
        if self.board is not None:
            for name, value in values.items():
                self.board.add_scalar(name, value, step)

    def held_out(self, step: int, values: dict[str, float]) -> None:
        """Tell of what was measured on held-out data."""
        if values:
            self.metrics(step, **values)
            self.note("  ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in values.items()))

    def note(self, text: str) -> None:
        """A line for whoever watches."""
        if self.bar is not None:
            self.bar.console.print(text, markup=False, highlight=False)
        else:
            self._say(text)

    def _say(self, text: str) -> None:
        if self.bar is None and not self.quiet:
            print(text, file=sys.stderr, flush=True)


def _cut(path: Path, step: int) -> None:
    """Forget what was written of later steps than the one that a run goes on from, and a line that broke off."""
    if not path.exists():
        return
    before, kept = path.read_text(encoding="utf-8"), []
    for line in before.splitlines():
        try:
            if json.loads(line)["step"] <= step:
                kept.append(line + "\n")
        except (ValueError, KeyError, TypeError):
            continue
    if (after := "".join(kept)) != before:
        write_atomically(path, after.encode())


def _bar(steps: int, first: int) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.4f}  lr {task.fields[lr]:.2e}  {task.fields[rate]:,.0f} tokens/s"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        refresh_per_second=4,
    )
    bar.add_task("training", total=steps, completed=first, loss=float("nan"), lr=0.0, rate=0.0)
    bar.start()
    return bar


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
