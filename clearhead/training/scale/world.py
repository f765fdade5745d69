"""The processes of a run: how they are arranged, and how they agree."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from clearhead.errors import ClearheadError
from clearhead.training.config import ScaleConfig

if TYPE_CHECKING:
    import torch

    from clearhead.model.transformer import Transformer
    from clearhead.training.data.batches import Batch
    from clearhead.training.objectives import Objective
    from clearhead.training.scale.engine import Lesson

T = TypeVar("T")

ANSWER = timedelta(minutes=10)
"""Who has not come to a meeting by then is taken for dead."""
PATIENCE = timedelta(days=7)
"""So long the others wait for what the first does alone, such as cutting texts into tokens."""


class LostError(ClearheadError):
    """Another process of the run is gone."""


class Alone:
    """The one process of a run that is not spread. Nothing is shared, and nobody waited for."""

    rank, size = 0, 1
    leads = True
    layout: tuple[int, ...] = ()
    """How many processes there are in each direction."""

    def lesson(self, model: Transformer, objective: Objective, first: Callable[[], Batch]) -> Lesson:
        """What a step works with; the model is laid out over the processes. `first` gives a batch to try it on."""
        from clearhead.training.scale.engine import Loss

        return Loss(model, objective)

    def mine(self, batch: Batch) -> Batch:
        """What of a batch is this process' to work on."""
        return batch

    def summed(self, *values: float) -> tuple[float, ...]:
        """Values added up over the processes that work on different parts of a batch."""
        return values

    def any(self, value: int | None) -> int | None:
        """What one of the processes has, for all; None where none has."""
        return value

    def lead(self, make: Callable[[], T]) -> T:
        """What the first process makes, for all of them; what it raises, they all do."""
        return make()

    def gathered(self, value: T) -> list[T]:
        """What each process has, in order; for those that don't lead, nothing."""
        return [value]

    def whole(self, model: Transformer) -> Transformer:
        """A plain model of the same weights, whole. All have to ask; for those that don't lead it is the model as they
        have it.
        """
        return model

    def whole_state(self, state: dict[str, Any]) -> dict[str, Any]:
        """A state with whole tensors. All have to ask; for those that don't lead there are none in it."""
        return state

    def seed(self, seed: int) -> None:
        """Let processes that work on different rows draw different numbers from here on."""


class World(Alone):
    """Several processes, in a mesh of three directions: `data` (rows), `context` (the tokens of a row) and `tensor`
    (matrices).
    """

    def __init__(self, scale: ScaleConfig) -> None:
        import torch
        import torch.distributed as dist
        from torch.distributed.device_mesh import init_device_mesh

        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.leads = self.rank == 0
        self.scale = scale
        n_data = self.size // (scale.tensor * scale.context)
        self.layout = (n_data, scale.context, scale.tensor)
        self.device = _device()
        self.mesh = init_device_mesh(self.device.type, self.layout, mesh_dim_names=("data", "context", "tensor"))
        self.rows = self.mesh["data", "context"]._flatten("rows") if scale.context > 1 else self.mesh["data"]
        self._torch, self._dist = torch, dist

    def lesson(self, model: Transformer, objective: Objective, first: Callable[[], Batch]) -> Lesson:
        from clearhead.training.scale.engine import Copies, Loss, Shards, uses_all

        model.to(self.device)
        if self.scale.tensor > 1:
            from clearhead.training.scale.tensor import share_matrices

            share_matrices(model, self.mesh["tensor"])
        loss = Loss(model, objective)
        if self.rows.size() == 1:
            return loss
        if self.scale.shard or self.scale.tensor > 1:
            return Shards(loss, self.rows)
        from clearhead.training.data.batches import split

        all_used = self.any(None if uses_all(loss, split(first(), 1)[0]) else 1) is None
        return Copies(loss, self.rows.get_group(), all_used=all_used)

    def mine(self, batch: Batch) -> Batch:
        from clearhead.training.scale.rows import rows_of

        return rows_of(batch, self.mesh.get_local_rank("data"), self.layout[0])

    def summed(self, *values: float) -> tuple[float, ...]:
        sums = self._torch.tensor(values, dtype=self._torch.float64)
        self._dist.all_reduce(sums, group=self.rows.get_group())
        return tuple(sums.tolist())

    def any(self, value: int | None) -> int | None:
        found = self._torch.tensor([-1 if value is None else value])
        self._dist.all_reduce(found, op=self._dist.ReduceOp.MAX)
        return None if int(found) < 0 else int(found)

    def lead(self, make: Callable[[], T]) -> T:
        said: list[Any] = [None, None]
        if self.leads:
            try:
                said[0] = make()
            except ClearheadError as problem:
                said[1] = problem
        self._wait()
        self._dist.broadcast_object_list(said, src=0, device=self._torch.device("cpu"))
        if said[1] is not None:
            raise said[1]
        made: T = said[0]
        return made

    def _wait(self) -> None:
        """Until the first process is here too, however long it takes."""
        store = self._dist.distributed_c10d._get_default_store()
        self._turn = getattr(self, "_turn", 0) + 1
        key = f"clearhead/{self._turn}"
        if self.leads:
            store.set(key, "")
        else:
            store.wait([key], PATIENCE)

    def gathered(self, value: T) -> list[T]:
        every: list[Any] = [None] * self.size
        self._dist.all_gather_object(every, value)
        return every if self.leads else []

    def whole(self, model: Transformer) -> Transformer:
        from clearhead.training.scale.whole import whole_model

        return whole_model(model, self.leads) or model

    def whole_state(self, state: dict[str, Any]) -> dict[str, Any]:
        from clearhead.training.scale.whole import gathered

        made: dict[str, Any] = gathered(state, self.leads)
        return made

    def seed(self, seed: int) -> None:
        from clearhead.training import checkpoint

        place = self.rows.get_local_rank()
        if place:
            checkpoint.seed_everything(seed + 7919 * place)


@contextmanager
def processes(scale: ScaleConfig) -> Iterator[Alone]:
    """The processes that `torchrun` has started, this one alone where it was not used.

    Raises:
        ClearheadError: there are too few or too many for what `scale` asks for, or one of them is gone.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    _check_fits(scale, size)
    if size == 1:
        yield Alone()
        return
    import torch.distributed as dist

    _check_can(scale)
    joined = not dist.is_initialized()
    if joined:
        device = _device()
        both = "gloo" if device.type == "cpu" else f"cpu:gloo,{device.type}:nccl"
        dist.init_process_group(both, timeout=ANSWER, device_id=None if device.type == "cpu" else device)
    try:
        yield World(scale)
    except (RuntimeError, ValueError) as problem:
        if not _is_loss(problem):
            raise
        raise LostError(
            "another process of this run is gone, so this one stops too; the newest checkpoint is whole, and --resume "
            "goes on from it, with as many processes or another number"
        ) from problem
    finally:
        if joined and dist.is_initialized():
            dist.destroy_process_group()


def restarted() -> bool:
    """Whether `torchrun` (--max-restarts) has started this run anew because a process of it was gone."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")) > 0


def _check_fits(scale: ScaleConfig, size: int) -> None:
    asked = scale.tensor * scale.context
    if size % asked:
        raise ClearheadError(
            f"run.scale.tensor is {scale.tensor} and run.scale.context {scale.context}, and there "
            f"{'is 1 process' if size == 1 else f'are {size} processes'}: start a multiple of {asked} (torchrun "
            f"--nproc-per-node {asked} -m clearhead train ...)"
        )


def _check_can(scale: ScaleConfig) -> None:
    import torch

    if scale.context > 1 and not torch.cuda.is_available():
        raise ClearheadError(
            f"run.scale.context is {scale.context}, and torch shares the tokens of a row between GPUs only: it can't "
            "run on a CPU; set it to 1, and share rows or matrices instead (run.scale.tensor)"
        )


def _device() -> torch.device:
    """This process' GPU, where there are any."""
    import torch

    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def _is_loss(problem: BaseException) -> bool:
    """Whether an error says that another process can't be reached."""
    import torch.distributed as dist

    words = str(problem)
    said = ("Connection closed by peer", "Connection reset by peer", "Timed out waiting", "gloo", "NCCL", "recvValue")
    return isinstance(problem, dist.DistError) or any(one in words for one in said)
