"""Who is told of a run beside its own files, and when."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearhead.training.showing import Shown
from clearhead.training.sinks import TensorBoard, installed, sinks
from clearhead.training.trainer import Step
from clearhead.training.utilisation import Work
from clearhead.training.watch import Watch, read_metrics
from tests.training.test_run import step

VARIABLES = ("WANDB_MODE", "WANDB_API_KEY", "WANDB_PROJECT")


@pytest.fixture(autouse=True)
def _nothing_set_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "no netrc"))


def png() -> bytes:
    import torch

    from clearhead.lens.views.thumbnail import thumbnail

    return thumbnail(torch.eye(4))


def test_tensorboard_has_numbers_samples_and_maps(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = TensorBoard(tmp_path, 0)
    board.numbers(3, {"loss": 2.0})
    board.shown(3, Shown("given  a\nwritten  b", png()))
    board.close()
    read = EventAccumulator(str(tmp_path / "tensorboard"))
    read.Reload()
    assert [(event.step, event.value) for event in read.Scalars("loss")] == [(3, 2.0)]
    assert [(event.step, event.width, event.height) for event in read.Images("attention")] == [(3, 4, 4)]
    assert b"    written  b" in read.Tensors("sample/text_summary")[0].tensor_proto.string_val[0]


class Run:
    def __init__(self, told: list[Any]) -> None:
        self.told = told

    def log(self, values: dict[str, Any], step: int) -> None:
        self.told.append((step, values))

    def finish(self) -> None:
        self.told.append("finished")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a made-up `wandb` is told."""
    said: list[Any] = []

    def init(**options: Any) -> Run:
        said.append(options)
        return Run(said)

    wandb = types.ModuleType("wandb")
    wandb.__spec__ = types.SimpleNamespace(origin="somewhere")  # type: ignore[assignment]
    parts = {
        "init": init,
        "Settings": lambda **options: options,
        "Html": lambda text: ("html", text),
        "Image": lambda pixels: ("image", pixels.shape),
    }
    for name, part in parts.items():
        setattr(wandb, name, part)
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    return said


def test_weights_and_biases_is_told_where_it_is_set_up(
    told: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    *_, sink = sinks(tmp_path, 0, {"run": {"steps": 3}})[0]
    sink.numbers(2, {"loss": 1.5})
    sink.shown(2, Shown("a <b>", png()))
    sink.close()
    options, numbers, shown, end = told
    assert (options["mode"], options["project"], options["config"]) == ("offline", "clearhead", {"run": {"steps": 3}})
    assert numbers == (2, {"loss": 1.5})
    assert shown == (2, {"sample": ("html", "<pre>a &lt;b&gt;</pre>"), "attention": ("image", (4, 4, 3))})
    assert end == "finished"
    told.clear()
    sinks(tmp_path, 2, {})
    assert told[0]["id"] == options["id"] != ""  # a run that goes on goes on there


@pytest.mark.parametrize(
    ("variables", "mode"),
    [
        ({}, None),
        ({"WANDB_MODE": "disabled", "WANDB_API_KEY": "k"}, None),
        ({"WANDB_API_KEY": "k"}, "online"),
        ({"WANDB_PROJECT": "p"}, "offline"),
        ({"WANDB_MODE": "offline", "WANDB_API_KEY": "k"}, "offline"),
    ],
)
def test_nobody_is_asked_for_a_key(
    variables: dict[str, str], mode: str | None, told: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    sinks(tmp_path, 0, {})
    assert [options["mode"] for options in told] == ([] if mode is None else [mode])


def test_a_service_that_is_not_there_stops_no_run(
    told: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def init(**options: Any) -> Run:
        raise ConnectionError("no network\nand more")

    monkeypatch.setattr(sys.modules["wandb"], "init", init)
    monkeypatch.setenv("WANDB_MODE", "online")
    assert sinks(tmp_path, 0, {})[1] == ["Weights & Biases is not told: no network"]


def test_a_folder_of_that_name_is_no_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "somename").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    assert not installed("somename") and not installed("nosuchname")
    assert installed("numpy")


def test_a_run_is_told_without_any(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.training.sinks.installed", lambda name: False)
    with Watch(tmp_path, 1, every=1, quiet=True) as watch:
        watch.step(step(1, 2.0, 1))
    assert [line["loss"] for line in read_metrics(tmp_path)] == [2.0]


def test_utilisation_is_told_and_what_is_no_step_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """16 places in 2 seconds, at 50 operations each of 1,000 a second; ten more seconds went into something else."""
    monkeypatch.setattr("clearhead.training.sinks.installed", lambda name: False)
    clock = iter(np.cumsum([0.0, 0.0, 1.0, 10.0, 1.0]))
    monkeypatch.setattr("clearhead.training.watch.time.perf_counter", lambda: float(next(clock)))
    with Watch(tmp_path, 2, every=2, work=Work(50.0, 1000.0)) as watch:
        watch.step(Step(number=1, loss=1.0, n_targets=1, lr=0.1, norm=1.0, n_slots=8))
        with watch.aside():
            pass
        watch.step(Step(number=2, loss=1.0, n_targets=1, lr=0.1, norm=1.0, n_slots=8))
    (line,) = read_metrics(tmp_path)
    assert (line["tokens_per_second"], line["utilisation"]) == (8.0, 0.4)
    assert "8 tokens/s  40% of peak" in capsys.readouterr().err
