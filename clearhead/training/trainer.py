"""One step after another: micro-batches, gradients, clipping, schedule; and all that makes a step repeatable."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.model.transformer import Transformer
from clearhead.taps import Mode, address
from clearhead.training import checkpoint
from clearhead.training.config import TrainConfig
from clearhead.training.data.batches import split
from clearhead.training.optimiser import optimiser
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

    def __init__(self, config: TrainConfig, model: Transformer, objective: Objective, batches: Batches) -> None:
        self.config = config
        self.model = model
        self.objective = objective
        self.batches = batches
        self.optimiser = optimiser(model, config.optim)
        self.peaks = [float(group["lr"]) for group in self.optimiser.param_groups]
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
        for part in split(batch, self.config.batch.micro_rows or len(batch.targets)):
            before = torch.get_rng_state()
            with self._precision():
                loss, n = self.objective.loss(self.model, part)
            if not math.isfinite(value := float(loss.detach())):
                raise self._not_finite(f"the loss of step {self.number + 1} is {value}", part, before)
            loss.backward()
            total, n_targets = total + value, n_targets + float(n)
        if n_targets == 0:
            raise ClearheadError(f"step {self.number + 1} has nothing to learn: its batch holds no target")
        norm = self._scale_gradients(n_targets)
        share = factor(self.config.schedule, self.number, run.steps)
        for group, peak in zip(self.optimiser.param_groups, self.peaks, strict=True):
            group["lr"] = peak * share
        self.optimiser.step()
        # Fused kernels leave the versions of weights as they are, by which what is made of weights is known to be old.
        torch.autograd.graph.increment_version([p for p in self.model.parameters() if p.grad is not None])
        self.number += 1
        return Step(
            number=self.number,
            loss=total / n_targets,
            n_targets=n_targets,
            lr=self.config.optim.lr * share,
            norm=norm,
            n_slots=next(iter(batch.inputs.values())).shape[:2].numel(),
        )

    def _scale_gradients(self, n_targets: float) -> float:
        """Make the gradients of the sum those of the mean, no longer than the clip; the length they had before."""
        named = [(name, p.grad) for name, p in self.model.named_parameters() if p.grad is not None]
        gradients = [gradient for _, gradient in named]
        norm = float(torch.nn.utils.get_total_norm(gradients)) / n_targets
        if not math.isfinite(norm):
            # It spreads from where it arose towards the input, so that is the last one which has it.
            odd = [name for name, gradient in named if not bool(gradient.isfinite().all())]
            where = odd[-1] if odd else "all of them together"
            raise NotFiniteError(f"the gradient of step {self.number + 1} is not finite, first in {where}")
        clip = self.config.optim.clip
        by = (1.0 if clip == 0 or norm <= clip else clip / norm) / n_targets
        torch._foreach_mul_(gradients, by)
        return norm

    def held_out(self, most: int | None = None) -> dict[str, float]:
        """The mean loss over held-out targets, or over those of the first `most` batches. Draws no random number."""
        total = n_targets = 0.0
        with evaluating(self.model):
            for i, batch in enumerate(self.batches.held_out()):
                if most is not None and i >= most:
                    break
                for part in split(batch, self.config.batch.micro_rows or len(batch.targets)):
                    with self._precision():
                        loss, n = self.objective.loss(self.model, part)
                    total, n_targets = total + float(loss), n_targets + float(n)
        return {"held_out_loss": total / n_targets} if n_targets else {}

    def state(self) -> dict[str, Any]:
        """All that the next step depends on, beside the weights and the config."""
        named = {name for name, _ in self.model.named_parameters(remove_duplicate=False)}
        buffers = {name: value for name, value in self.model.state_dict().items() if name not in named}
        return {
            "step": self.number,
            "optimiser": self.optimiser.state_dict(),
            "random": checkpoint.random_state(),
            "buffers": buffers,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Go on from what `state` gave; the weights are set apart from it."""
        rates = [group["lr"] for group in self.optimiser.param_groups]
        self.optimiser.load_state_dict(state["optimiser"])
        for group, rate in zip(self.optimiser.param_groups, rates, strict=True):
            group["lr"] = rate
        self.model.load_state_dict(state["buffers"], strict=False)
        self.number = int(state["step"])
        checkpoint.set_random_state(state["random"])

    def _precision(self) -> AbstractContextManager[Any]:
        if self.config.run.dtype == "float32":
            return nullcontext()
        return torch.autocast(self.model.device.type, dtype=torch.bfloat16)

    def _not_finite(self, what: str, batch: Batch, random_state: Tensor) -> NotFiniteError:
        """Run the batch again, with the same random numbers, to see which layer is the first to go wrong."""
        odd = next((name for name, p in self.model.named_parameters() if not bool(p.isfinite().all())), None)
        if odd is not None:
            return NotFiniteError(f"{what}: the weights {odd} are not finite")
        torch.set_rng_state(random_state)
        finder = _FirstOdd()
        with torch.no_grad(), self._precision():
            self.objective.loss(self.model, batch, taps=finder)
        if finder.found is None:
            return NotFiniteError(f"{what}, though every layer's output is finite: it is the head, or a target")
        return NotFiniteError(f"{what}: the first layer whose output is not finite is {finder.found}")


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
