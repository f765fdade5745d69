"""What a step works with: a model whose forward pass is the loss."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Protocol

from torch import Tensor, nn

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.taps import Taps
    from clearhead.training.data.batches import Batch
    from clearhead.training.objectives import Objective


class Lesson(Protocol):
    """What a step works with."""

    def __call__(self, objective: Objective, batch: Batch, taps: Taps | None = None) -> tuple[Tensor, Tensor]:
        """The sum of the losses of a batch, and the number of its targets, as `objective.loss` gives them."""
        ...

    def part(self, batch: Batch, is_last: bool) -> AbstractContextManager[Batch]:
        """Within it, a micro-batch is worked on, forwards and backwards: what is given is this process' part of it.
        After the last one of a step, gradients are added up.
        """
        ...

    def settle(self) -> None:
        """After passes without gradients: weights lie again as they do between steps."""
        ...

    def moved(self) -> None:
        """The optimiser has moved the weights."""
        ...


class Loss(nn.Module):
    """A model as a module whose forward pass is the loss: the lesson of one process."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, objective: Objective, batch: Batch, taps: Taps | None = None) -> tuple[Tensor, Tensor]:
        return objective.loss(self.model, batch, taps)

    def part(self, batch: Batch, is_last: bool) -> AbstractContextManager[Batch]:
        return nullcontext(batch)

    def settle(self) -> None:
        """They never lie otherwise."""

    def moved(self) -> None:
        """Their versions say so."""
