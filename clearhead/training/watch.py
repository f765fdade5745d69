"""What a run shows: a bar or lines on standard error, `metrics.jsonl`, and whatever else is told (see `sinks`)."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from clearhead.errors import ClearheadError
from clearhead.files import write_whole
from clearhead.training.sinks import Sink, sinks

if TYPE_CHECKING:
    from clearhead.training.showing import Shown
    from clearhead.training.trainer import Step
    from clearhead.training.utilisation import Work

METRICS = "metrics.jsonl"


class Watch:
    """Tells of a run as it goes. A line of metrics every `every` steps; its loss is the mean since the last line."""

    def __init__(
        self,
        folder: Path,
        steps: int,
        *,
        first: int = 0,
        every: int = 10,
        quiet: bool = False,
        work: Work | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        """first: so many steps are done. work: what a place of a batch costs; None tells no utilisation. config: of the
        run, in plain values.
        """
        self.path = folder / METRICS
        self.folder, self.steps, self.every, self.quiet = folder, steps, every, quiet
        self.work, self.config = work, config or {}
        self.since: list[Step] = []
        self.first = first
        self.started = self.last = time.perf_counter()
        self.bar: Any = None
        self.sinks: list[Sink] = []

    def __enter__(self) -> Self:
        _cut(self.path, self.first)
        self.sinks, notes = sinks(self.folder, self.first, self.config)
        if not self.quiet and sys.stderr.isatty():
            self.bar = _bar(self.steps, self.first)
        for note in notes:
            self.note(note)
        self.started = self.last = time.perf_counter()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.bar is not None:
            self.bar.stop()
        for sink in self.sinks:
            sink.close()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Within it, no step is made: it does not count where tokens a second are told."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.last += time.perf_counter() - start

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
        speed = f"{rate:,.0f} tokens/s"
        if self.work is not None:
            values["utilisation"] = self.work.utilisation(rate)
            speed += f"  {values['utilisation']:.0%} of peak"
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], speed=speed)
        left = (now - self.started) / max(last.number - self.first, 1) * (self.steps - last.number)
        self._say(
            f"step {last.number:>{len(str(self.steps))}} of {self.steps}  loss {values['loss']:.4f}  "
            f"lr {last.lr:.2e}  {speed}  {_clock(left)} left"
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
        for sink in self.sinks:
            sink.numbers(step, values)

    def held_out(self, step: int, values: dict[str, float]) -> None:
        """Tell of what was measured on held-out data."""
        if values:
            self.metrics(step, **values)
            self.note("  ".join(f"{name.replace('_', ' ')} {value:.4f}" for name, value in values.items()))

    def shown(self, step: int, shown: Shown) -> None:
        """Tell of what the model does with held-out data."""
        shown.save(self.folder, step)
        for sink in self.sinks:
            sink.shown(step, shown)
        self.note("\n".join(f"  {line}" for line in shown.text.splitlines()))

    def note(self, text: str) -> None:
        """A line for whoever watches."""
        if self.bar is not None:
            self.bar.console.print(text, markup=False, highlight=False)
        else:
            self._say(text)

    def _say(self, text: str) -> None:
        if self.bar is None and not self.quiet:
            print(text, file=sys.stderr, flush=True)


def read_metrics(folder: Path) -> list[dict[str, float]]:
    """The lines of a run's metrics."""
    return [json.loads(line) for line in (folder / METRICS).read_text(encoding="utf-8").splitlines()]


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
        write_whole(path, after.encode())


def _bar(steps: int, first: int) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    bar = Progress(
        MofNCompleteColumn(),
        BarColumn(),
        TextColumn("loss {task.fields[loss]:.4f}  lr {task.fields[lr]:.2e}  {task.fields[speed]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        refresh_per_second=4,
    )
    bar.add_task("training", total=steps, completed=first, loss=float("nan"), lr=0.0, speed="")
    bar.start()
    return bar


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
