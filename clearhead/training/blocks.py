"""How the blocks of a model are run in a step: as they are written, compiled, or a second time in the backward pass."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from clearhead.training.compiling import Run, compiled_parts
from clearhead.training.config import RunConfig
from clearhead.training.recompute import recomputed_parts


def ways(model: nn.Module, config: RunConfig) -> dict[nn.Module, Run]:
    """The parts that are not run as they are written, and how each is.

    Raises:
        ClearheadError: they are to be compiled, and there is no compiler that works.
    """
    runs = compiled_parts(model) if config.compile else {}
    return {**runs, **recomputed_parts(model, runs)} if config.recompute else runs


@contextmanager
def run_by(runs: dict[nn.Module, Run]) -> Iterator[None]:
    """Within it, these modules are run these ways; hooks and names are as they were."""
    for module, run in runs.items():
        module.forward = run
    try:
        yield
    finally:
        for module in runs:
            del module.forward
