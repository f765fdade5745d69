"""The processes that `torchrun` starts for a run: joining them, and what becomes of one when another is gone."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from clearhead.errors import ClearheadError
from clearhead.training.config import TrainConfig
from clearhead.training.scale.alone import Alone

if TYPE_CHECKING:
    from clearhead.training.trainer import Step

ANSWER = timedelta(minutes=10)
"""Who has not come to a meeting by then is taken for dead."""


class LostError(ClearheadError):
    """Another process of the run is gone."""


@contextmanager
def joined() -> Iterator[None]:
    """Within it, this process is in touch with the others that `torchrun` has started; where it was not used, there are
    none.

    Raises:
        LostError: one of them is gone.
    """
    if _size() == 1:
        yield
        return
    device = _device()
    both = "gloo" if device.type == "cpu" else f"cpu:gloo,{device.type}:nccl"
    try:
        store, rank, size = next(rendezvous("env://", timeout=ANSWER))
        # The store may be that of a start before this one, and hold where processes lived that are gone.
        store = dist.PrefixStore(f"start {_starts()}", store)  # type: ignore[attr-defined]
        gpu = None if device.type == "cpu" else device
        dist.init_process_group(both, store=store, rank=rank, world_size=size, timeout=ANSWER, device_id=gpu)
        yield
    except (RuntimeError, ValueError) as problem:
        if not _says_lost(problem):
            raise
        raise LostError(
            "another process of this run is gone, so this one stops too; the newest checkpoint is whole, and --resume "
            "goes on from it, with as many processes or another number"
        ) from problem
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def arranged(config: TrainConfig) -> Alone:
    """The processes of a run, as `run.scale` arranges them.

    Raises:
        ClearheadError: there are too few or too many for it, or it can't be done.
    """
    scale, size = config.run.scale, _size()
    asked = scale.tensor * scale.context
    if size % asked:
        raise ClearheadError(
            f"run.scale.tensor is {scale.tensor} and run.scale.context {scale.context}, and there "
            f"{'is 1 process' if size == 1 else f'are {size} processes'}: start a multiple of {asked} (torchrun "
            f"--nproc-per-node {asked} -m clearhead train ...)"
        )
    if size == 1:
        return Alone()
    _check_can(config)
    from clearhead.training.scale.world import World

    return World(scale, _device())


def first_of_all() -> bool:
    """Whether this process is the one that tells."""
    return os.environ.get("RANK", "0") == "0"


def restarted() -> bool:
    """Whether `torchrun` (--max-restarts) has started this run anew because a process of it was gone."""
    return _starts() > 0


def _starts() -> int:
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def _size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def _check_can(config: TrainConfig) -> None:
    scale = config.run.scale
    if (scale.shard or scale.tensor > 1) and config.optim.name == "adafactor":
        raise ClearheadError(
            "torch's adafactor needs every matrix whole, and run.scale.shard and run.scale.tensor share them; use "
            "adamw or muon, or go without (each process has all weights then)"
        )
    if scale.tensor > 1 and config.run.compile:
        raise ClearheadError(
            "run.compile has not been made to work on matrices that several processes share; leave out run.compile or "
            "run.scale.tensor"
        )
    if scale.context > 1 and not torch.cuda.is_available():
        raise ClearheadError(
            f"run.scale.context is {scale.context}, and torch shares the tokens of a row between GPUs only: it can't "
            "run on a CPU; set it to 1, and share rows or matrices instead (run.scale.tensor)"
        )


def _device() -> torch.device:
    """This process' GPU, where there are any."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def _says_lost(problem: BaseException) -> bool:
    """Whether an error says that another process can't be reached: most of torch's are of no kind of their own."""
    words = str(problem)
    said = ("Connection closed by peer", "Connection reset by peer", "Timed out waiting", "gloo", "NCCL", "recvValue")
    return isinstance(problem, dist.DistError) or any(one in words for one in said)


class Unwatched:
    """In place of a `Watch`, for the processes that don't tell: whatever it is asked to do, it does nothing."""

    since: tuple[Step, ...] = ()

    def __enter__(self) -> Unwatched:
        return self

    def __exit__(self, *problem: object) -> None:
        """Nothing was begun."""

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext()

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *args, **kwargs: None
