"""What is refused before a run begins, and what one process alone does without."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch.distributed as dist

from clearhead.errors import ClearheadError
from clearhead.training.config import OptimConfig, ScaleConfig
from clearhead.training.scale import processes
from clearhead.training.scale.alone import Alone
from clearhead.training.scale.processes import LostError, arranged, joined
from clearhead.training.scale.sequence import check
from tests.training.scale.courses import config_of, trainer_of


@pytest.mark.parametrize(
    ("n", "scale", "words"),
    [
        (4, ScaleConfig(tensor=3), "run.scale.tensor is 3 .* there are 4 processes: start a multiple of 3"),
        (1, ScaleConfig(tensor=2), "there is 1 process: start a multiple of 2 .*torchrun --nproc-per-node 2"),
        (2, ScaleConfig(tensor=2, context=2), "there are 2 processes: start a multiple of 4"),
    ],
)
def test_processes_that_do_not_fit_are_refused(
    n: int, scale: ScaleConfig, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", str(n))
    with pytest.raises(ClearheadError, match=words):
        arranged(config_of(scale))


def test_tokens_of_a_row_are_not_shared_on_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(ClearheadError, match=r"run\.scale\.context is 2, .* it can't run on a CPU"):
        arranged(config_of(ScaleConfig(context=2)))


@pytest.mark.parametrize("scale", [ScaleConfig(shard=True), ScaleConfig(tensor=2)])
def test_adafactor_needs_matrices_whole(scale: ScaleConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ClearheadError, match="adafactor needs every matrix whole"):
        arranged(config_of(scale, optim=OptimConfig(name="adafactor")))


@pytest.mark.parametrize(("name", "is_refused"), [("grouped", False), ("slopes", True), ("sinks", True)])
def test_only_plain_causal_attention_shares_the_tokens_of_a_row(name: str, is_refused: bool) -> None:
    model = trainer_of(name, config_of(ScaleConfig())).model
    if not is_refused:
        check(model)
        return
    with pytest.raises(ClearheadError, match=r"layers\.0 is not plain causal attention"):
        check(model)


def test_one_process_joins_nothing() -> None:
    with joined():
        assert type(arranged(config_of(ScaleConfig()))) is Alone
        assert not dist.is_initialized()


def test_a_lost_process_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(dist, "init_process_group", lambda *args, **kwargs: None)
    meeting = iter([(dist.HashStore(), 0, 2), (dist.HashStore(), 0, 2)])
    monkeypatch.setattr(processes, "rendezvous", lambda *args, **kwargs: meeting)
    with pytest.raises(LostError, match=r"another process of this run is gone.*--resume"), joined():
        raise RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection closed by peer [127.0.0.1]:61234")
    with pytest.raises(RuntimeError, match="of another kind"), joined():
        raise RuntimeError("of another kind")


def test_one_process_does_not_import_what_several_need() -> None:
    code = "import sys, clearhead.training.trainer; print([m for m in sys.modules if 'training.scale' in m])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "alone" in found and "world" not in found and "engine" not in found
