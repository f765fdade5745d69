"""Several processes: how they are arranged, and how they agree."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from clearhead.errors import ClearheadError
from clearhead.training import checkpoint
from clearhead.training.config import ScaleConfig
from clearhead.training.data.batches import split
from clearhead.training.scale.alone import Alone, mixed
from clearhead.training.scale.engine import Copies, Matrices, Shards, uses_all
from clearhead.training.scale.lesson import Lesson, Loss
from clearhead.training.scale.rows import rows_of
from clearhead.training.scale.tensor import share_matrices
from clearhead.training.scale.whole import gathered, placed, placed_state, whole_model

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.training.data.batches import Batch
    from clearhead.training.objectives import Objective

T = TypeVar("T")

PATIENCE = timedelta(days=7)
"""So long the others wait for what the first does alone, such as cutting texts into tokens."""

_TURNS = count()


class World(Alone):
    """Several processes, in a mesh of three directions: `data` (rows), `context` (the tokens of a row) and `tensor`
    (matrices).
    """

    def __init__(self, scale: ScaleConfig, device: torch.device) -> None:
        self.scale = scale
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self.leads = self.rank == 0
        self.layout = (self.size // (scale.tensor * scale.context), scale.context, scale.tensor)
        self.device = device
        self.mesh = init_device_mesh(self.device.type, self.layout, mesh_dim_names=("data", "context", "tensor"))
        self.rows = self.mesh["data", "context"]._flatten("rows") if scale.context > 1 else self.mesh["data"]

    def lesson(self, model: Transformer, objective: Objective, first: Callable[[], Batch]) -> Lesson:
        model.to(self.device)
        if self.scale.tensor > 1:
            share_matrices(model, self.mesh["tensor"])
        loss = Loss(model)
        if self.rows.size() == 1:
            return Matrices(loss)
        if self.scale.shard or self.scale.tensor > 1:
            lesson: Lesson = Shards(loss, self.rows)
        else:
            all_used = self.any(None if uses_all(loss, objective, split(first(), 1)[0]) else 1) is None
            lesson = Copies(loss, self.rows.get_group(), all_used=all_used)
        if self.scale.context == 1:
            return lesson
        from clearhead.training.scale.sequence import Tokens

        return Tokens(lesson, model, self.mesh["context"])

    def whole(self, model: Transformer) -> Transformer:
        return whole_model(model, self.leads) or model

    def whole_state(self, state: dict[str, Any]) -> dict[str, Any]:
        made: dict[str, Any] = gathered(state, self.leads)
        return made

    def place(self, value: Tensor, like: Tensor) -> Tensor:
        return placed(value, like)

    def laid_out(self, state: dict[str, Any], optimiser: Optimizer) -> dict[str, Any]:
        return placed_state(state, optimiser)

    def here(self, value: Tensor) -> Tensor:
        return value.to_local() if isinstance(value, DTensor) else value

    def number(self, value: Tensor) -> Tensor:
        return value.full_tensor() if isinstance(value, DTensor) else value

    def mine(self, batch: Batch) -> Batch:
        return rows_of(batch, self.mesh.get_local_rank("data"), self.layout[0])

    def seed(self, seed: int, step: int = 0) -> None:
        # Those that share matrices work on the same rows, and must drop the same numbers of the stream.
        if place := self.rows.get_local_rank():
            checkpoint.seed_everything(mixed(seed, step, place))

    def random_state(self) -> dict[str, Any]:
        state = checkpoint.random_state()
        every: list[Any] = [None] * self.size
        dist.all_gather_object(every, state)
        return {"random": state, "layout": list(self.layout), "by_process": every if self.leads else []}

    def set_random_state(self, state: dict[str, Any], seed: int) -> None:
        if tuple(state.get("layout", ())) == self.layout:
            checkpoint.set_random_state(state["by_process"][self.rank])
        else:
            super().set_random_state(state, seed)
            self.seed(seed, int(state["step"]))

    def summed(self, *values: float) -> tuple[float, ...]:
        sums = torch.tensor(values, dtype=torch.float64)
        # Over all, so that no process goes on where another has met what is no number; those that share matrices have
        # the same values.
        dist.all_reduce(sums)
        return tuple((sums / self.scale.tensor).tolist())

    def any(self, value: int | None) -> int | None:
        found = torch.tensor([-1 if value is None else value])
        dist.all_reduce(found, op=dist.ReduceOp.MAX)
        return None if int(found) < 0 else int(found)

    def said(self, words: str | None) -> str | None:
        every: list[Any] = [None] * self.size
        dist.all_gather_object(every, words)
        return next((one for one in every if one is not None), None)

    def lead(self, make: Callable[[], T]) -> T:
        made: list[Any] = [None, None]
        if self.leads:
            try:
                made[0] = make()
            except ClearheadError as problem:
                made[1] = problem
        self._wait()
        dist.broadcast_object_list(made, src=0, device=torch.device("cpu"))
        if made[1] is not None:
            raise made[1]
        result: T = made[0]
        return result

    def _wait(self) -> None:
        """Until the first process is here too, however long it takes."""
        store = dist.distributed_c10d._get_default_store()
        turn = f"clearhead/{next(_TURNS)}"
        if self.leads:
            store.set(turn, "")
        else:
            store.wait([turn], PATIENCE)
