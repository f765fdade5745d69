"""A run in one process, and what any run asks of its processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from torch import Tensor
from torch.optim import Optimizer

from clearhead.training import checkpoint
from clearhead.training.scale.lesson import Lesson, Loss

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.training.data.batches import Batch
    from clearhead.training.objectives import Objective

T = TypeVar("T")


class Alone:
    """The one process of a run that is not spread. Nothing is shared, and nobody waited for."""

    leads = True
    """Whether this is the process that writes and tells."""
    layout: tuple[int, ...] = ()
    """How many processes there are in each direction."""

    # ---- the model and its weights

    def lesson(self, model: Transformer, objective: Objective, first: Callable[[], Batch]) -> Lesson:
        """What a step works with; the model is laid out over the processes. `first` gives a batch to try it on."""
        return Loss(model)

    def whole(self, model: Transformer) -> Transformer:
        """A plain model of the same weights, whole. All have to ask; for those that don't lead it is the model as they
        have it.
        """
        return model

    def whole_state(self, state: dict[str, Any]) -> dict[str, Any]:
        """A state with whole tensors. All have to ask; for those that don't lead there are none in it."""
        return state

    def place(self, value: Tensor, like: Tensor) -> Tensor:
        """A whole tensor, laid out as `like` is."""
        return value

    def laid_out(self, state: dict[str, Any], optimiser: Optimizer) -> dict[str, Any]:
        """The whole state of an optimiser, laid out as the weights of `optimiser` are."""
        return state

    def here(self, value: Tensor) -> Tensor:
        """What lies in this process."""
        return value

    def number(self, value: Tensor) -> Tensor:
        """A result that is wanted whole."""
        return value

    # ---- rows and random numbers

    def mine(self, batch: Batch) -> Batch:
        """What of a batch is this process' to work on."""
        return batch

    def seed(self, seed: int, step: int = 0) -> None:
        """Let processes that work on different rows draw different numbers from here on."""

    def random_state(self) -> dict[str, Any]:
        """Where the generators of all processes stand."""
        return {"random": checkpoint.random_state()}

    def set_random_state(self, state: dict[str, Any], seed: int) -> None:
        """Go on drawing where a checkpoint's state says; where it was written by processes arranged in another way,
        draw anew.
        """
        if tuple(state.get("layout", ())) == self.layout:
            checkpoint.set_random_state(state["random"])
        else:
            checkpoint.seed_everything(mixed(seed, int(state["step"])))

    # ---- agreement

    def summed(self, *values: float) -> tuple[float, ...]:
        """Values added up over the processes that work on different parts of a batch."""
        return values

    def any(self, value: int | None) -> int | None:
        """The highest number that one of the processes has; None where none has one."""
        return value

    def said(self, words: str | None) -> str | None:
        """What the first process says that says anything."""
        return words

    def lead(self, make: Callable[[], T]) -> T:
        """What the first process makes, for all of them; what it raises, they all do."""
        return make()


def mixed(*numbers: int) -> int:
    """A seed that other numbers would not give."""
    return int(np.random.SeedSequence([number % 2**64 for number in numbers]).generate_state(1)[0])
