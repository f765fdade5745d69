"""`clearhead.train`: a whole run, from a config to a model and a report, that goes on after whatever stops it."""

from __future__ import annotations

import copy
import math
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from clearhead.errors import ClearheadError, UsageError
from clearhead.model.transformer import Transformer
from clearhead.training import checkpoint
from clearhead.training.config import Stages, StartConfig, TrainConfig
from clearhead.training.lora import adapted, write_adapter
from clearhead.training.models import start_model
from clearhead.training.objectives import from_config, of_data
from clearhead.training.prepare import prepare
from clearhead.training.prepared import Prepared
from clearhead.training.recipes import recipe as recipe_named
from clearhead.training.report import Told, command_of, write_reports
from clearhead.training.scale.alone import Alone
from clearhead.training.scale.processes import Unwatched, arranged, first_of_all, joined, restarted
from clearhead.training.settings import change, differences, from_plain, plain, refuse, unsaid
from clearhead.training.showing import show
from clearhead.training.snapshots import keep_snapshot
from clearhead.training.start import hashes, load_teacher, located
from clearhead.training.trainer import NotFiniteError, Step, Trainer
from clearhead.training.utilisation import work_of
from clearhead.training.watch import Watch, read_metrics

Recipe = str | Callable[[], TrainConfig | Stages] | TrainConfig | Stages
ADAPTER = "adapter"
LOSSES = ("held_out_loss_before", "held_out_loss")
"""What reports call the loss at the beginning of a run that goes on from a model, and in the end."""
MAY_CHANGE = ("run.steps", "run.recompute", "run.scale.", "optim.lr", "optim.clip", "schedule.", "every.")
"""What may be another when a run goes on; all else would make it another run."""


@dataclass(frozen=True)
class Call:
    """How a run is called for."""

    folder: Path
    data: Path
    """The folder of what is made of its data."""
    command: str
    """What is typed to make it again."""
    resume: bool
    quiet: bool


@dataclass(frozen=True)
class Trained:
    """What a run came to."""

    model: Transformer
    checkpoint: Path | None
    """The newest, which `clearhead.load` reads."""
    steps: int
    report: dict[str, Any] | None
    """What was measured at the end; None where the run was stopped before."""
    stopped_by: int | None = None
    """The signal that stopped it."""


def train(
    recipe: Recipe,
    *,
    settings: tuple[str, ...] = (),
    out: str | Path | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> Trained:
    """Train a model. Checkpoints, metrics and the report go to `out`, `runs/` and the recipe's name if not given; those
    of a recipe in stages to a folder there for each, and what is given back is the last one's, with all reports.

    Torch's, NumPy's and Python's generators are seeded. SIGTERM and Ctrl-C have the step finished and saved.

    Args:
        recipe: the name of a recipe, a function that gives a config, or a config.
        settings: changes to it, each `PATH=VALUE`.
        out: a folder.
        resume: go on from the newest checkpoint there, bit for bit as if nothing had happened; where there is none,
            begin.
        quiet: say nothing on standard error.

    Raises:
        ClearheadError: the data can't be read, the checkpoint is of another run, a loss is not finite, the disk is
            full. The newest checkpoint is whole whatever happens.
    """
    config = config_of(recipe, settings)
    name = recipe if isinstance(recipe, str) else getattr(recipe, "__name__", "train")
    folder = Path(out).expanduser() if out is not None else Path("runs") / name
    if empty := unsaid(config):
        needed = " ".join(f"--set {path}=..." for path in empty)
        raise UsageError(f"this recipe has to be told what to work on: {needed}")
    command = command_of(recipe, settings, out) if isinstance(recipe, str) else f"clearhead.train({name})"
    with joined():
        call = Call(folder, folder, command, resume or restarted(), quiet or not first_of_all())
        return _stages(config, call) if isinstance(config, Stages) else _run(config, call)


def _stages(config: Stages, call: Call) -> Trained:
    """One run after another, each in a folder of its own; what is made of the data is shared."""
    reports: dict[str, Any] = {}
    done: Trained | None = None
    for number, field in enumerate(fields(config), 1):
        if not call.quiet:
            print(f"stage {number} of {len(fields(config))}: {field.name}", file=sys.stderr, flush=True)
        stage = located(getattr(config, field.name), call.folder)
        done = _run(stage, replace(call, folder=call.folder / field.name))
        if done.report is None:
            return done
        reports[field.name] = done.report
    assert done is not None
    if not call.quiet:
        print("\n".join(_compared(reports)), file=sys.stderr, flush=True)
    return replace(done, report=reports)


def _compared(reports: dict[str, Any]) -> list[str]:
    """The losses of stages beside each other."""
    lines = []
    for name, report in reports.items():
        losses = [f"{key.replace('_', ' ')} {report[key]:.4f}" for key in LOSSES if key in report]
        lines.append(f"{name}: {'  '.join(losses) or 'nothing was held out'}")
    return lines


def _run(config: TrainConfig, call: Call) -> Trained:
    """One run, by the processes that there are."""
    world, folder = arranged(config), call.folder
    found = world.lead(lambda: checkpoint.checkpoints(folder))
    if found and not call.resume:
        raise ClearheadError(
            f"{folder} holds the checkpoints of a run; go on with it (--resume), or name another (--out)"
        )
    state = checkpoint.read_state(found[-1][1]) if found else None
    notes = [f"going on from {found[-1][1]}", *check_same(config, state, found[-1][1])] if state is not None else []
    if state is not None and tuple(state.get("layout", ())) != world.layout:
        notes.append("it was written by processes arranged in another way, so dropout draws other numbers from here on")
    prepared = _prepared(world, config, call.data, quiet=call.quiet)
    begun_from = hashes(config)
    checkpoint.seed_everything(config.run.seed)
    model = start_model(config, prepared.tokenizer, prepared.labels)
    prepared.batches.check(model.config)
    teacher = None if config.objective.teacher is None else load_teacher(config.objective.teacher, model)
    if teacher is not None:
        prepared.batches.check(teacher.config)
    objective = from_config(config.objective, teacher)
    # Before the model is laid out over processes, each of which would see a part of it.
    work = work_of(config, model, objective, prepared.batches, math.prod(world.layout)) if world.leads else None
    trainer = Trainer(config, model, objective, prepared.batches, begun_from, world)
    trainer.beside = {"labels": prepared.labels, "files": prepared.files}
    world.seed(config.run.seed)
    since = _go_on(trainer, found[-1][1], state) if state is not None else []
    world.lead(lambda: checkpoint.tidy(folder, config.every.keep))
    folder.mkdir(parents=True, exist_ok=True)
    first, steps = trainer.number, config.run.steps
    about: dict[str, Any] = {"every": config.every.log, "quiet": call.quiet, "work": work, "config": plain(config)}
    told: Any = Watch(folder, steps, first=first, **about) if world.leads else Unwatched()
    with told as watch:
        watch.since = since
        for note in notes:
            watch.note(note)
        with Stop(world) as stop:
            newest = _steps(trainer, folder, watch, stop)
        if (signalled := stop.agreed()) is not None:
            watch.note(f"stopped after step {trainer.number}; --resume goes on from {newest or 'the beginning'}")
            return Trained(trainer.end(), newest, trainer.number, None, signalled)
        report = _finish(trainer, prepared, call, watch, newest)
    return Trained(trainer.end(), newest, trainer.number, report)


def _prepared(world: Alone, config: TrainConfig, data: Path, *, quiet: bool) -> Prepared:
    """The data: made by one process, and found by the others."""
    made: list[Prepared] = []
    world.lead(lambda: made.append(prepare(config, data, quiet=quiet)))
    return made[0] if made else prepare(config, data, quiet=True)


def config_of(recipe: Recipe, settings: tuple[str, ...] = ()) -> TrainConfig | Stages:
    """The config of a recipe, with settings in place."""
    if not isinstance(recipe, TrainConfig | Stages):
        recipe = recipe_named(recipe) if isinstance(recipe, str) else recipe()
    return change(recipe, settings)


def _steps(trainer: Trainer, folder: Path, watch: Watch, stop: Stop) -> Path | None:
    """All steps that are left, with what is due after each; the newest checkpoint."""
    every, steps = trainer.config.every, trainer.config.run.steps
    world = trainer.world
    found = world.lead(lambda: checkpoint.checkpoints(folder))
    newest = found[-1][1] if found else None
    saved = trainer.number

    def due(interval: int) -> bool:
        return interval > 0 and trainer.number % interval == 0

    if trainer.number == 0 and isinstance(trainer.config.model, StartConfig):
        watch.held_out(0, trainer.held_out(every.held_out or None))
    keep_snapshot(trainer, folder)
    while trainer.number < steps and stop.agreed() is None:
        try:
            step = trainer.step()
        except NotFiniteError as problem:
            kept = f"the last good checkpoint is {newest}" if newest else "no checkpoint had been saved yet"
            raise NotFiniteError(f"{problem}; {kept}") from problem
        watch.step(step)
        is_last = trainer.number == steps
        with watch.aside():
            keep_snapshot(trainer, folder)
            if due(every.evaluate) or is_last:
                watch.held_out(trainer.number, trainer.held_out(every.held_out or None))
            if due(every.show) or is_last:
                _show(trainer, watch)
            if due(every.save) or is_last or stop.agreed() is not None:
                newest, saved = save(trainer, folder, watch.since), trainer.number
    if saved != trainer.number:
        newest = save(trainer, folder, watch.since)
    return newest


def _show(trainer: Trainer, watch: Watch) -> None:
    """Tell what the model does with held-out data. That it can't be shown is no reason to stop."""

    def tell() -> None:
        try:
            shown = show(model, of_data(trainer.objective), trainer.batches, trainer.config.objective.name)
        except ClearheadError as problem:
            watch.note(f"no sample is shown: {problem}")
        else:
            if shown is not None:
                watch.shown(trainer.number, shown)

    with trainer.finished() as model:
        trainer.world.lead(tell)


def save(trainer: Trainer, folder: Path, since: list[Step] | None = None) -> Path:
    """Write a checkpoint of where a run stands, and let go of the oldest."""
    config = trainer.config
    state = {
        **trainer.state(),
        "config": plain(config),
        "data": plain(trainer.batches.describe()),
        "since": [asdict(step) for step in since or []],
    }
    family = None if isinstance(config.model, StartConfig) else config.model.family

    def write() -> Path:
        newest = checkpoint.write(folder, trainer.number, model, family, state, **trainer.beside)
        checkpoint.tidy(folder, config.every.keep)
        return newest

    with trainer.finished() as model:
        return trainer.world.lead(write)


def _go_on(trainer: Trainer, folder: Path, state: dict[str, Any]) -> list[Step]:
    """Put a trainer where a checkpoint was written; the steps that were not told of yet."""
    data = plain(trainer.batches.describe())
    refuse(data, state["data"], f"{folder} is a checkpoint of a run on other data")
    refuse(dict(trainer.begun_from), state["begun_from"], f"{folder} is of a run that began from another model")
    if not adapted(trainer.model):
        checkpoint.read_weights(folder, trainer.model, trainer.world.place)
    trainer.set_state(state)
    return [Step(**step) for step in state["since"]]


def _in_full(saved: dict[str, Any]) -> dict[str, Any]:
    """A saved config with every field that there is now: one that came later stands as it is when nobody sets it."""
    try:
        full: dict[str, Any] = plain(from_plain(TrainConfig, saved))
    except (TypeError, ValueError):
        return saved
    return full


def check_same(config: TrainConfig, state: dict[str, Any], folder: Path) -> list[str]:
    """Refuse a checkpoint of another run, by name; what differs and may, in words.

    Raises:
        ClearheadError: model, objective, data or anything else that decides what a step does is another.
    """
    # What it began from is known by its content, and may lie elsewhere today.
    mine, theirs = _without_sources(plain(config)), _without_sources(_in_full(state["config"]))
    refuse(mine["model"], theirs["model"], f"{folder} is a checkpoint of another model", "model")
    refuse(mine["data"], theirs["data"], f"{folder} is a checkpoint of a run on other data", "data")
    found = differences(mine, theirs)
    wrong = [words for words in found if not words.startswith(MAY_CHANGE)]
    if wrong:
        raise ClearheadError(f"{folder} is a checkpoint of another run: {'; '.join(wrong[:3])}")
    return found


def _without_sources(config: dict[str, Any]) -> dict[str, Any]:
    """A config as JSON, but for where the models lie that it begins from."""
    config = copy.deepcopy(config)
    for part in (config["model"], config["objective"]["teacher"]):
        if part is not None:
            part.pop("source", None)
    return config


def _finish(trainer: Trainer, prepared: Prepared, call: Call, watch: Watch, newest: Path | None) -> dict[str, Any]:
    """Measure the finished model, and write the report."""
    folder = call.folder
    about = {"steps": trainer.number, "checkpoint": str(newest)}
    with trainer.finished() as model:
        report = trainer.world.lead(lambda: {**about, **_losses(folder), **prepared.measure(model)})
        _write_adapter(trainer, folder)
        n_parameters = sum(p.numel() for p in model.parameters())

    def write() -> None:
        told = Told(
            name=folder.resolve().name,
            command=call.command,
            config=trainer.config,
            data=plain(trainer.batches.describe()),
            measured=report,
            n_parameters=n_parameters,
            metrics=read_metrics(folder),
        )
        write_reports(folder, told)

    trainer.world.lead(write)
    watch.note("  ".join(f"{name.replace('_', ' ')} {_number(value)}" for name, value in report.items()))
    return report


def _write_adapter(trainer: Trainer, folder: Path) -> None:
    """Put adapters, where there are any, beside the checkpoints by themselves: there they are merged."""
    start = trainer.config.model
    if isinstance(start, StartConfig) and start.lora is not None:
        model = trainer.world.whole(trainer.model)
        if trainer.world.leads:
            write_adapter(model, start.lora, folder / ADAPTER)


def _losses(folder: Path) -> dict[str, float]:
    """The loss on held-out data in the end, and of a model that was there before, at the beginning."""
    losses = {line["step"]: line["held_out_loss"] for line in read_metrics(folder) if "held_out_loss" in line}
    if not losses:
        return {}
    before, after = LOSSES
    return {**({before: losses[0]} if 0 in losses else {}), after: losses[max(losses)]}


def _number(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_number(one)}" for name, one in value.items())
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


class Stop:
    """Within it, SIGTERM and Ctrl-C only leave a mark; a second one acts at once, though not where there are several
    processes: `torchrun` passes on what they may have had already. In other threads, it is nothing.
    """

    def __init__(self, world: Alone | None = None) -> None:
        self.world = world or Alone()
        self.signal: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._mark) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def agreed(self) -> int | None:
        """The signal that one of the processes has had; all have to ask."""
        return self.world.any(self.signal)

    def _mark(self, number: int, frame: FrameType | None) -> None:
        self.signal = number
        if not self.world.layout:
            self._restore()

    def _restore(self) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._restore()
