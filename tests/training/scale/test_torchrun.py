"""`torchrun -m clearhead train`, as it is typed: it ends as one process does, also where a process of it is killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow
STEPS = 24
SETTINGS = {
    "data.corpus.pattern": "*.txt",
    "data.corpus.exclude": "[]",
    "data.tokenizer": "bytes",
    "data.held_out": "0.2",
    "model.d_model": "16",
    "model.n_layers": "2",
    "model.n_heads": "2",
    "model.n_kv_heads": "2",
    "model.d_ff": "24",
    "batch.rows": "3",
    "batch.length": "16",
    "optim.name": "adamw",
    "optim.lr": "1e-2",
    "run.steps": str(STEPS),
    "every.log": "1",
    "every.save": "4",
    "every.evaluate": "0",
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("texts")
    for i in range(30):
        (folder / f"{i:02}.txt").write_text(f"the cat sat on mat {i} and saw {i * i} dogs\n")
    return folder


def start(corpus: Path, out: Path, *more: str, n: int = 2, restarts: int = 0) -> subprocess.Popen[str]:
    run = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n}", f"--max-restarts={restarts}"]
    settings = [f"--set={name}={value}" for name, value in {**SETTINGS, "data.corpus.path": str(corpus)}.items()]
    command = [sys.executable, *(run if n > 1 else []), "-m", "clearhead", "train", "gpt_stdlib", *settings]
    env = {**os.environ, "OMP_NUM_THREADS": "1", "CLEARHEAD_SHAPE_CHECKS": "0"}
    return subprocess.Popen(
        [*command, f"--out={out}", *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    )


def after_step(out: Path, step: int, run: subprocess.Popen[str]) -> None:
    """Wait until a step is done."""
    end = time.monotonic() + 300
    while not any(line.get("step", 0) >= step for line in lines(out)):
        assert run.poll() is None and time.monotonic() < end, run.communicate()[1]
        time.sleep(0.02)


def lines(out: Path) -> list[dict[str, Any]]:
    path = out / "metrics.jsonl"
    whole = path.read_text().splitlines(keepends=True) if path.exists() else []
    return [json.loads(line) for line in whole if line.endswith("\n")]


def losses(out: Path) -> list[float]:
    return [line["loss"] for line in lines(out) if "loss" in line]


def second_of(run: subprocess.Popen[str]) -> int:
    """The id of the process that does not lead."""
    for child in Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split():
        if b"RANK=1" in Path(f"/proc/{child}/environ").read_bytes().split(b"\0"):
            return int(child)
    raise AssertionError("torchrun has no second process")


@pytest.fixture(scope="module")
def alone(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The losses of the undisturbed run in one process."""
    out = tmp_path_factory.mktemp("alone") / "run"
    run = start(corpus, out, n=1)
    assert run.wait(300) == 0, run.communicate()[1]
    return losses(out)


def test_a_killed_process_ends_the_run_with_its_name_and_resume_goes_on(
    corpus: Path, alone: list[float], tmp_path: Path
) -> None:
    run = start(corpus, tmp_path / "run")
    after_step(tmp_path / "run", 6, run)
    os.kill(second_of(run), signal.SIGKILL)
    _, said = run.communicate(timeout=120)
    assert run.returncode != 0
    assert "another process of this run is gone" in said
    again = start(corpus, tmp_path / "run", "--resume", "--json")
    out, said = again.communicate(timeout=300)
    assert again.returncode == 0, said
    assert json.loads(out)["steps"] == STEPS
    assert losses(tmp_path / "run") == pytest.approx(alone, abs=1e-5)


def test_torchrun_restarts_a_run_that_lost_a_process(corpus: Path, alone: list[float], tmp_path: Path) -> None:
    run = start(corpus, tmp_path / "run", restarts=1)
    after_step(tmp_path / "run", 6, run)
    os.kill(second_of(run), signal.SIGKILL)
    _, said = run.communicate(timeout=300)
    assert run.returncode == 0, said
    assert "going on from" in said
    assert losses(tmp_path / "run") == pytest.approx(alone, abs=1e-5)


def test_a_signal_to_torchrun_has_all_save_the_same_step_and_stop(
    corpus: Path, alone: list[float], tmp_path: Path
) -> None:
    run = start(corpus, tmp_path / "run")
    after_step(tmp_path / "run", 5, run)
    run.terminate()
    _, said = run.communicate(timeout=120)
    assert run.returncode != 0
    done = len(losses(tmp_path / "run"))
    assert 5 <= done < STEPS and (tmp_path / "run" / f"step-{done:06}").is_dir(), said
    assert f"stopped after step {done}" in said
    again = start(corpus, tmp_path / "run", "--resume")
    assert again.wait(300) == 0, again.communicate()[1]
    assert losses(tmp_path / "run") == pytest.approx(alone, abs=1e-5)
