"""A run that is killed goes on as if nothing had happened, to the last bit; and never from what is not its own."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import clearhead
from clearhead.errors import ClearheadError
from clearhead.training import checkpoint
from clearhead.training.config import DataConfig, RunConfig, TrainConfig
from clearhead.training.data.documents import Corpus
from clearhead.training.run import Stop, check_same, save, train
from clearhead.training.settings import plain
from tests.training.samples import same, tiny, tiny_trainer

ROOT = Path(__file__).parents[2]
WORDS = "the cat sat on a mat and the dog saw it".split()


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Twelve short texts: a run of twelve steps reads them twice and more."""
    folder = tmp_path_factory.mktemp("texts")
    for i in range(12):
        (folder / f"{i:02}.txt").write_text(" ".join(WORDS[i % 5 :: 1 + i % 3]) + "\n")
    return Corpus(path=str(folder))


def run_of(corpus: Corpus, **changes: Any) -> TrainConfig:
    return tiny(data=DataConfig(corpus=corpus, tokenizer="bytes", held_out=0.3), **changes)


# ---- in one process (H09)


@pytest.mark.parametrize("stop", [5, 7], ids=["at the end of an epoch", "inside the second epoch"])
def test_a_resumed_run_is_bit_equal(stop: int, tmp_path: Path) -> None:
    """Ten samples, batches of two, two a step, dropout, AdamW and a schedule, twelve steps."""
    straight = tiny_trainer()
    steps = [straight.step() for _ in range(12)]
    ended, drawn = straight.state(), torch.rand(3)

    first = tiny_trainer()
    for _ in range(stop):
        first.step()
    save(first, tmp_path)
    torch.manual_seed(99)
    resumed = tiny_trainer()
    with torch.no_grad():
        for p in resumed.model.parameters():
            p.zero_()
    (found,) = checkpoint.checkpoints(tmp_path)
    state = checkpoint.read_state(found[1])
    checkpoint.read_weights(found[1], resumed.model)
    resumed.set_state(state)
    assert [resumed.step() for _ in range(12 - stop)] == steps[stop:]
    assert [*first.batches.asked, *resumed.batches.asked] == straight.batches.asked
    assert same(_known(resumed.state()), _known(ended))
    assert same(dict(resumed.model.named_parameters()), dict(straight.model.named_parameters()))
    assert torch.equal(torch.rand(3), drawn)


def _known(state: dict[str, Any]) -> dict[str, Any]:
    """A state without Python's own generator, from which the shape checks of these tests draw."""
    return {**state, "random": {name: value for name, value in state["random"].items() if name != "python"}}


@pytest.mark.parametrize("name", ["adamw", "muon", "adafactor"])
def test_every_optimiser_resumes(name: Any, tmp_path: Path) -> None:
    config = tiny(optim=replace(tiny().optim, name=name))
    straight = tiny_trainer(config)
    for _ in range(6):
        straight.step()
        if straight.number == 3:
            save(straight, tmp_path)
    ended = straight.state()
    torch.manual_seed(99)
    resumed = tiny_trainer(config)
    folder = checkpoint.checkpoints(tmp_path)[-1][1]
    checkpoint.read_weights(folder, resumed.model)
    resumed.set_state(checkpoint.read_state(folder))
    for _ in range(3):
        resumed.step()
    assert same(_known(resumed.state()), _known(ended))
    assert same(dict(resumed.model.named_parameters()), dict(straight.model.named_parameters()))


# ---- killed


KILLED = """
import json, os, random, signal, sys
import torch
import clearhead.training.trainer as trainer
from clearhead.training.run import train
from tests.training.test_resume import run_of
from clearhead.training.data.documents import Corpus

torch.set_num_threads(1)
path, out, n_kills = sys.argv[1], sys.argv[2], int(sys.argv[3])
config = run_of(Corpus(path=path))
step, fsync = trainer.Trainer.step, os.fsync


def work(after):
    left = [after]
    def count():
        left[0] -= 1
        if left[0] < 0:
            os.kill(os.getpid(), signal.SIGKILL)
    def counted_step(self):
        count()
        return step(self)
    def counted_fsync(handle):
        count()
        return fsync(handle)
    trainer.Trainer.step, os.fsync = counted_step, counted_fsync
    train(config, out=out, resume=True, quiet=True)


kills = random.Random(5)
ended = []
while True:
    # At a step, or in the middle of a save; and in the end not at all.
    after = kills.randrange(1, 12) if len(ended) < n_kills else 10**9
    if (child := os.fork()) == 0:
        work(after)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        ended.append(after)
        continue
    print(json.dumps({"killed": len(ended), "status": status}))
    break
"""


def killed_run(corpus: Corpus, out: Path, n_kills: int) -> dict[str, int]:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, corpus.path, str(out), str(n_kills)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


@pytest.mark.slow
@pytest.mark.parametrize("n_kills", [1, 10])
def test_a_run_killed_at_random_ends_as_an_undisturbed_one(n_kills: int, corpus: Corpus, tmp_path: Path) -> None:
    """SIGKILL at random steps and in the middle of saves, each time gone on from in a new process."""
    told = killed_run(corpus, tmp_path / "killed", n_kills)
    assert told["status"] == 0
    assert told["killed"] == n_kills
    assert killed_run(corpus, tmp_path / "straight", 0) == {"killed": 0, "status": 0}
    a, b = (checkpoint.checkpoints(tmp_path / name)[-1] for name in ("killed", "straight"))
    assert a[0] == b[0] == 12
    assert same(checkpoint.read_state(a[1]), checkpoint.read_state(b[1]))
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (a[1] / name).read_bytes() == (b[1] / name).read_bytes()
    lines = [
        [_timeless(line) for line in (tmp_path / name / "metrics.jsonl").open()] for name in ("killed", "straight")
    ]
    assert lines[0] == lines[1]
    assert len([line for line in lines[0] if "loss" in line]) == 12
    assert not [path for path in (tmp_path / "killed").iterdir() if path.name.startswith(".")]


def _timeless(line: str) -> dict[str, float]:
    return {name: value for name, value in json.loads(line).items() if name not in ("tokens_per_second", "utilisation")}


def test_sigterm_finishes_the_step_saves_and_leaves(corpus: Corpus, tmp_path: Path, monkeypatch: Any) -> None:
    from clearhead.training.trainer import Trainer

    real = Trainer.step

    def step(self: Trainer) -> Any:
        if self.number == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(self)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(Trainer, "step", step)
    config = run_of(corpus, every=replace(tiny().every, save=0))
    done = train(config, out=tmp_path, quiet=True)
    assert (done.stopped_by, done.steps, done.report) == (signal.SIGTERM, 3, None)
    assert [number for number, _ in checkpoint.checkpoints(tmp_path)] == [3]
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(ClearheadError, match="--resume"):
        train(config, out=tmp_path, quiet=True)
    done = train(config, out=tmp_path, resume=True, quiet=True)
    assert (done.stopped_by, done.steps) == (None, 12)
    assert done.report is not None and done.report["bits_per_byte"] > 0


def test_in_another_thread_no_signal_is_touched() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen = []

    def work() -> None:
        with Stop() as stop:
            seen.append((stop.signal, signal.getsignal(signal.SIGINT)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [(None, before)]


# ---- refused


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda c: replace(c, model=replace(c.model, d_ff=32)), "another model: model.d_ff is 32, and was 24"),
        (lambda c: replace(c, data=replace(c.data, held_out=0.5)), "other data: data.held_out is 0.5, and was 0.05"),
        (lambda c: replace(c, batch=replace(c.batch, rows=8)), "another run: batch.rows is 8, and was 4"),
        (lambda c: replace(c, run=RunConfig(steps=12, seed=1)), "another run: run.seed is 1, and was 0"),
        (lambda c: replace(c, optim=replace(c.optim, name="muon")), "another run: optim.name"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(change: Callable[[Any], Any], said: str) -> None:
    state = {"config": plain(tiny())}
    with pytest.raises(ClearheadError, match=said):
        check_same(change(tiny()), state, Path("runs/x"))


def test_data_that_changed_is_refused(corpus: Corpus, tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    for path in Path(corpus.path).iterdir():
        (texts / path.name).write_bytes(path.read_bytes())
    config = run_of(Corpus(path=str(texts)), run=RunConfig(steps=4))
    train(config, out=tmp_path / "run", quiet=True)
    (texts / "03.txt").write_text("another text altogether")
    with pytest.raises(ClearheadError, match="other data"):
        train(replace(config, run=RunConfig(steps=6)), out=tmp_path / "run", resume=True, quiet=True)


def test_what_may_change_is_told() -> None:
    state = {"config": plain(tiny())}
    longer = tiny(run=RunConfig(steps=20), optim=replace(tiny().optim, lr=1e-3))
    assert check_same(longer, state, Path("x")) == [
        "optim.lr is 0.001, and was 0.01",
        "run.steps is 20, and was 12",
    ]


def test_a_field_that_came_later_stands_as_nobody_set_it() -> None:
    state = {"config": plain(tiny())}
    del state["config"]["batch"]["repeated"]
    assert check_same(tiny(), state, Path("x")) == []
    changed = tiny(batch=replace(tiny().batch, repeated=1))
    with pytest.raises(ClearheadError, match=r"batch\.repeated is 1, and was 0"):
        check_same(changed, state, Path("x"))


# ---- a full disk


@pytest.mark.parametrize("where", ["training.pt", "weights", "names"])
def test_a_full_disk_leaves_the_last_good_checkpoint(where: str, tmp_path: Path, monkeypatch: Any) -> None:
    trainer = tiny_trainer()
    trainer.step()
    good = save(trainer, tmp_path)
    bytes_before = {path.name: path.read_bytes() for path in good.iterdir()}
    trainer.step()

    def full(*args: Any, **kwargs: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    if where == "training.pt":
        monkeypatch.setattr(torch, "save", full)
    elif where == "weights":
        monkeypatch.setattr("clearhead.checkpoints.write._save", full)
    else:
        monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ClearheadError, match=r"step-000002.* can't be written: No space left on device"):
        save(trainer, tmp_path)
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == ["step-000001"]
    assert {path.name: path.read_bytes() for path in good.iterdir()} == bytes_before
    assert clearhead.load(good).config == trainer.model.config
    assert save(trainer, tmp_path).name == "step-000002"


def test_weights_that_are_no_numbers_are_not_saved(tmp_path: Path) -> None:
    trainer = tiny_trainer()
    good = save(trainer, tmp_path)
    with torch.no_grad():
        trainer.model.norm.weight[0] = float("inf")
    trainer.number = 1
    with pytest.raises(ClearheadError, match=r"norm\.weight has become infinite"):
        save(trainer, tmp_path)
    assert [path for _, path in checkpoint.checkpoints(tmp_path)] == [good]


def test_old_checkpoints_and_broken_off_ones_go(tmp_path: Path) -> None:
    trainer = tiny_trainer()
    for name in (".step-000001.0123abcd.tmp", "..step-000001.0123abcd.tmp.4567cdef.tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / ".metrics.jsonl.0123abcd.tmp").touch()
    for _ in range(4):
        trainer.step()
        save(trainer, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-000003", "step-000004"]


def test_a_damaged_checkpoint_is_named(tmp_path: Path) -> None:
    folder = save(tiny_trainer(), tmp_path)
    (folder / "training.pt").write_bytes((folder / "training.pt").read_bytes()[:100])
    with pytest.raises(ClearheadError, match=r"training\.pt can't be read"):
        checkpoint.read_state(folder)


def test_an_infinite_loss_keeps_the_last_good_checkpoint(corpus: Corpus, tmp_path: Path, monkeypatch: Any) -> None:
    from clearhead.training.trainer import Trainer

    real = Trainer.step

    def step(self: Trainer) -> Any:
        if self.number == 5:
            with torch.no_grad():
                self.model.layers[1].ffn.up_proj.weight.mul_(1e38)
                self.model.layers[1].ffn.gate_proj.weight.mul_(1e30)
        return real(self)

    monkeypatch.setattr(Trainer, "step", step)
    with pytest.raises(ClearheadError, match=r"step 6 .*layers\.1\.ffn.*last good checkpoint is .*step-000004"):
        train(run_of(corpus), out=tmp_path, quiet=True)
    clearhead.load(tmp_path / "step-000004")


@pytest.mark.slow
def test_the_program_leaves_with_143_when_it_is_told_to_end(corpus: Corpus, tmp_path: Path) -> None:
    settings = f"""
        data.corpus.path={corpus.path} data.corpus.pattern=* data.tokenizer=bytes data.held_out=0.2
        model.d_model=16 model.n_layers=1 model.n_heads=2 model.n_kv_heads=1 model.d_ff=24
        batch.rows=2 batch.length=16 run.steps=100000 every.log=1 every.save=0
    """
    flags = [part for setting in textwrap.dedent(settings).split() for part in ("--set", setting)]
    command = [sys.executable, "-m", "clearhead", "train", "gpt_stdlib", "--out", str(tmp_path), *flags]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as run:
        assert run.stderr is not None
        for line in run.stderr:
            if line.startswith("step"):
                break
        run.send_signal(signal.SIGTERM)
        rest = run.stderr.read()
    assert run.returncode == 143, rest
    assert "--resume goes on from" in rest
    assert "Traceback" not in rest
    assert len(checkpoint.checkpoints(tmp_path)) == 1
