"""Blocks compiled by torch. Weights, names and checkpoints are what they were: only the way from x to x is another.

Each block is compiled by itself, and those that are alike share what was compiled. Rows of other lengths are compiled
for once more, and then for all lengths (torch's automatic dynamic shapes); where something is another every time, torch
gives up after a few and runs the block as it is written.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch._functorch.config as functions
from torch import Tensor, nn

from clearhead.errors import ClearheadError
from clearhead.forward import Pass
from clearhead.nn.block import Block
from clearhead.nn.experts import Experts

Run = Callable[[Tensor, Pass], Tensor]
"""What a block or a sub-layer does: from the stream, and the pass, to the stream or a correction."""

KEPT = 0.8
"""How much of what the backward pass reads is kept, and not worked out again. In bfloat16, on 6 layers of 384 and 16
rows of 256: all of it is 349 MB and takes 1.23 s a step, 0.8 is 215 MB and takes 1.12 s, 0.6 is 195 MB and 1.31 s.
"""


def compiled_parts(model: nn.Module, backend: Any = "inductor") -> dict[nn.Module, Run]:
    """The parts of a model that are compiled, and how each is then run. `backend` is what torch compiles with.

    Raises:
        ClearheadError: there is no compiler that works.
    """
    # It means the choice of an attention kernel, which depends on nothing but its arguments.
    warnings.filterwarnings("ignore", message="Dynamo detected a call to a `functools.lru_cache`")
    _check(backend)
    return {part: _compiled(part, backend) for part in _parts(model)}


def _parts(model: nn.Module) -> Iterator[nn.Module]:
    """Whole blocks; of one with experts, whose products depend on what is chosen, what stands before them."""
    for block in model.modules():
        if isinstance(block, Block):
            if not any(isinstance(module, Experts) for module in block.modules()):
                yield block
            else:
                yield from (part for part in (block.mixer, block.cross) if part is not None)


def _compiled(part: nn.Module, backend: Any) -> Run:
    plain: Run = part.forward
    fast: Run = torch.compile(plain, backend=backend)
    sites = [(str(module.path), name) for module in part.modules() for name in getattr(module, "sites", ())]

    def run(x_BTD: Tensor, p: Pass) -> Tensor:
        if p.taps is not None and any(p.taps.mode(path, name) != "none" for path, name in sites):
            return plain(x_BTD, p)
        p = p.alone()
        p.taps = None
        with functions.patch(activation_memory_budget=KEPT):
            return fast(x_BTD, p)

    return run


def _check(backend: Any) -> None:
    try:
        if backend == "inductor":
            # What was compiled before is kept on the disk, and would be found without a compiler.
            from torch._inductor.cpp_builder import get_cpp_compiler

            get_cpp_compiler()
        torch.compile(_one_more, backend=backend)(torch.zeros(2))
    except Exception as problem:  # whatever is wrong with a compiler, and there are many of them
        words = str(problem).strip().splitlines() or [type(problem).__name__]
        raise ClearheadError(
            f"run.compile needs a C++ compiler that works ({words[0]}): apt-get install g++ python3-dev, or go without "
            "(--set run.compile=false)"
        ) from problem


def _one_more(x: Tensor) -> Tensor:
    return x + 1
