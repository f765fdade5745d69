"""Blocks of which a step keeps only what goes in: the inside is computed again in the backward pass (Chen 2016,
Training deep nets with sublinear memory cost). Dropout draws the same numbers the second time.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from clearhead.forward import Pass
from clearhead.nn.block import Block
from clearhead.training.compiling import Run


def recomputed_parts(model: nn.Module, runs: dict[nn.Module, Run]) -> dict[nn.Module, Run]:
    """The blocks of a model, and how each is then run: the way it is in `runs`, or as it is written."""
    blocks = [block for block in model.modules() if isinstance(block, Block)]
    return {block: _recomputed(runs.get(block, block.forward)) for block in blocks}


def _recomputed(run: Run) -> Run:
    def once(x_BTD: Tensor, p: Pass) -> Tensor:
        # What a pass remembers must not be made the first time and only found the second.
        return run(x_BTD, p.alone())

    def twice(x_BTD: Tensor, p: Pass) -> Tensor:
        out_BTD: Tensor = checkpoint(once, x_BTD, p, use_reentrant=False, preserve_rng_state=True)
        return out_BTD

    return twice
