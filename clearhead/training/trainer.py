"""One step after another: micro-batches, gradients, clipping, schedule; and all that makes a step repeatable."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.model.transformer import Transformer
from clearhead.taps import Mode, address
from clearhead.training.average import Average
from clearhead.training.blocks import run_by, ways
from clearhead.training.config import TrainConfig
from clearhead.training.data.batches import split
from clearhead.training.lora import adapted, merged
from clearhead.training.objectives import of_data
from clearhead.training.optimiser import optimiser
from clearhead.training.precision import precision
from clearhead.training.scale.alone import Alone
from clearhead.training.schedule import factor

if TYPE_CHECKING:
    from clearhead.training.data.batches import Batch, Batches
    from clearhead.training.objectives import Objective


class NotFiniteError(ClearheadError):
    """An infinity, or no number at all, where the model or its gradient should have one."""


@dataclass(frozen=True)
class Step:
    """What one optimiser step did."""

    number: int
    """Counted from 1: so many steps are done."""
    loss: float
    """The mean over all real targets of the step."""
    n_targets: float
    lr: float
    norm: float
    """The length of the gradient of that mean, before clipping."""
    n_slots: int
    """Places in the batch, padding and all: what the machine worked on."""


class Trainer:
    """A model, what it learns, and from what. `number` steps are done."""

    def __init__(
        self,
        config: TrainConfig,
        model: Transformer,
        objective: Objective,
        batches: Batches,
        begun_from: Mapping[str, str] | None = None,
        world: Alone | None = None,
    ) -> None:
        """begun_from: hashes of the models that the run begins from, which must be the same for it to go on.
        world: the processes of the run; the model is laid out over them.
        """
        self.config = config
        self.begun_from = dict(begun_from or {})
        self.model = model
        self.objective = objective
        self.batches = batches
        self.beside: dict[str, Any] = {}
        """What checkpoints have beside the weights: the labels' names, and files (see `clearhead.save`)."""
        self.world = world or Alone()
        self.lesson = self.world.lesson(model, objective, lambda: batches.step(0))
        self.optimiser = optimiser(model, config.optim)
        self.peaks = [float(group["lr"]) for group in self.optimiser.param_groups]
        self.average = Average(model, config.run.average) if config.run.average else None
        self.ways = ways(model, config.run)
        self.number = 0

    def step(self) -> Step:
        """One optimiser step over the whole batch. How it is cut into micro-batches changes nothing: gradients of sums
        are added up, and divided by the number of targets in the end.

        Raises:
            NotFiniteError: the loss or its gradient is infinite or no number; no weight has moved.
        """
        run = self.config.run
        self.model.train()
        self.optimiser.zero_grad(set_to_none=True)
        batch = self.batches.step(self.number)
        total = n_targets = 0.0
        with run_by(self.ways):
            parts = self._parts(batch)
            for i, one in enumerate(parts, 1):
                before = torch.get_rng_state()
                with self.lesson.part(one, i == len(parts)) as part:
                    with self._precision():
                        loss, n_here = self.lesson(self.objective, part)
                    value, n = self.world.summed(float(loss.detach()), float(n_here))
                    if not math.isfinite(value):
                        raise self._not_finite(f"the loss of step {self.number + 1} is {value}", part, before)
                    loss.backward()
                total, n_targets = total + value, n_targets + n
        if n_targets == 0:
            raise ClearheadError(f"step {self.number + 1} has nothing to learn: its batch holds no target")
        norm = self._scale_gradients(n_targets)
        share = factor(self.config.schedule, self.number, run.steps)
        for group, peak in zip(self.optimiser.param_groups, self.peaks, strict=True):
            group["lr"] = peak * share
        self.optimiser.step()
        # Fused kernels leave the versions of weights as they are, by which what is made of weights is known to be old.
        torch.autograd.graph.increment_version([p for p in self.model.parameters() if p.grad is not None])
        self.lesson.moved()
        self.number += 1
        if self.average is not None:
            self.average.add(self.number)
        return Step(
            number=self.number,
            loss=total / n_targets,
            n_targets=n_targets,
            lr=self.config.optim.lr * share,
            norm=norm,
            n_slots=batch.n_slots,
        )

    def _parts(self, batch: Batch) -> list[Batch]:
        """This process' rows of a batch, in micro-batches."""
        mine = self.world.mine(batch)
        return split(mine, self.config.batch.micro_rows or len(mine.targets))

    def _scale_gradients(self, n_targets: float) -> float:
        """Make the gradients of the sum those of the mean, no longer than the clip; the length they had before."""
        named = [(name, p.grad) for name, p in self.model.named_parameters() if p.grad is not None]
        gradients = [gradient for _, gradient in named]
        norm = float(self.world.number(torch.nn.utils.get_total_norm(gradients))) / n_targets
        if not math.isfinite(norm):
            # It spreads from where it arose towards the input, so that is the last one which has it.
            odd = [i for i, (_, gradient) in enumerate(named) if not self._is_finite(gradient)]
            last = self.world.any(odd[-1] if odd else None)
            where = "all of them together" if last is None else named[last][0]
            raise NotFiniteError(f"the gradient of step {self.number + 1} is not finite, first in {where}")
        clip = self.config.optim.clip
        by = (1.0 if clip == 0 or norm <= clip else clip / norm) / n_targets
        torch._foreach_mul_(gradients, by)
        return norm

    def held_out(self, most: int | None = None) -> dict[str, float]:
        """The mean loss over held-out targets, or over those of the first `most` batches. Draws no random number."""
        total = n_targets = 0.0
        objective = of_data(self.objective)
        with self._mean_in_place(), evaluating(self.model):
            for i, batch in enumerate(self.batches.held_out()):
                if most is not None and i >= most:
                    break
                for one in self._parts(batch):
                    with self.lesson.part(one, True) as part, self._precision():
                        loss, n = self.lesson(objective, part)
                    total, n_targets = total + float(loss), n_targets + float(n)
            self.lesson.settle()
        total, n_targets = self.world.summed(total, n_targets)
        return {"held_out_loss": total / n_targets} if n_targets else {}

    @contextmanager
    def finished(self) -> Iterator[Transformer]:
        """The model that is measured and saved: a plain one, of all that training has come to."""
        with self._mean_in_place():
            yield self._plain()

    def end(self) -> Transformer:
        """The same for good: no step can follow."""
        if self.average is not None:
            self.average.settle()
        return self._plain().eval()

    def _plain(self) -> Transformer:
        """The model by itself; of several processes, the first has it."""
        model = self.world.whole(self.model)
        return merged(model) if self.world.leads else model

    def _mean_in_place(self) -> AbstractContextManager[None]:
        return nullcontext() if self.average is None else self.average.in_place()

    def state(self) -> dict[str, Any]:
        """All that the next step depends on, beside the weights of the finished model and the config.

        Where the weights that move are not those of the finished model, they are here too.
        """
        # Copies, because the mean takes their place where a checkpoint is written.
        apart = adapted(self.model) or self.average is not None
        trained = {name: p.detach().clone() for name, p in self.model.named_parameters() if apart and p.requires_grad}
        named = {name for name, _ in self.model.named_parameters(remove_duplicate=False)}
        buffers = {name: value for name, value in self.model.state_dict().items() if name not in named}
        tensors = {
            "optimiser": self.optimiser.state_dict(),
            "buffers": buffers,
            "weights": trained,
            "means": {} if self.average is None else self.average.means,
        }
        random = self.world.random_state()
        return {"step": self.number, "begun_from": self.begun_from, **self.world.whole_state(tensors), **random}

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave; the weights are set apart from it."""
        rates = [group["lr"] for group in self.optimiser.param_groups]
        self.optimiser.load_state_dict(self.world.laid_out(state["optimiser"], self.optimiser))
        for group, rate in zip(self.optimiser.param_groups, rates, strict=True):
            group["lr"] = rate
        like = self.model.state_dict()
        weights = {name: self.world.place(value, like[name]) for name, value in state["weights"].items()}
        self.model.load_state_dict({**state["buffers"], **weights}, strict=False)
        if (average := self.average) is not None:
            means = {name: self.world.place(value, average.means[name]) for name, value in state["means"].items()}
            average.set_state(means)
        self.number = int(state["step"])
        self.world.set_random_state(state, self.config.run.seed)

    def _precision(self) -> AbstractContextManager[Any]:
        return precision(self.config.run.dtype, self.model.device)

    def _not_finite(self, what: str, batch: Batch, random_state: Tensor) -> NotFiniteError:
        """Run the batch again, with the same random numbers, to see which layer is the first to go wrong."""
        odd = next((name for name, p in self.model.named_parameters() if not self._is_finite(p)), None)
        if (odd := self.world.said(odd)) is not None:
            return NotFiniteError(f"{what}: the weights {odd} are not finite")
        torch.set_rng_state(random_state)
        finder = _FirstOdd()
        with torch.no_grad(), self._precision():
            self.lesson(self.objective, batch, finder)
        if (found := self.world.said(finder.found)) is None:
            return NotFiniteError(f"{what}, though every layer's output is finite: it is the head, or a target")
        return NotFiniteError(f"{what}: the first layer whose output is not finite is {found}")

    def _is_finite(self, value: Tensor) -> bool:
        return bool(self.world.here(value).isfinite().all())


class _FirstOdd:
    """Taps that remember the first value with an infinity or no number in it."""

    found: str | None = None

    def mode(self, path: str, name: str) -> Mode:
        # Masked scores are minus infinity, and these two are computed only where somebody looks.
        return "none" if name in ("scores", "pattern") else "read"

    def __call__(self, path: str, name: str, value: Tensor) -> Tensor:
        looked_at = name not in ("scores", "pattern") and value.is_floating_point()
        if self.found is None and looked_at and not bool(value.isfinite().all()):
            self.found = address(path, name)
        return value


@contextmanager
def evaluating(model: torch.nn.Module) -> Iterator[None]:
    """Without dropout and gradients; then as it was."""
    before = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(before)
