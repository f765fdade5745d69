"""Context parallelism: the processes share the tokens of every row, and attention sends keys and values round
(Liu 2023, Ring attention).

This is torch's `context_parallel`, as its documentation has it. It has kernels for GPUs only, so nothing here but the
refusals has been run by this project's tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.experimental import context_parallel

from clearhead.config import AttentionConfig, BlockConfig, RotaryConfig
from clearhead.errors import ClearheadError
from clearhead.forward import Places
from clearhead.ops.masks import Positions
from clearhead.training.data.batches import Batch

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.taps import Taps
    from clearhead.training.objectives import Objective
    from clearhead.training.scale.lesson import Lesson


class Tokens:
    """A lesson of which each process has some of every row's tokens."""

    def __init__(self, lesson: Lesson, model: Transformer, mesh: DeviceMesh) -> None:
        check(model)
        self.lesson, self.mesh, self.device = lesson, mesh, model.device
        self._places: Places | None = None
        model.embed.register_forward_pre_hook(self._tell)

    def __call__(self, objective: Objective, batch: Batch, taps: Taps | None = None) -> tuple[Tensor, Tensor]:
        return self.lesson(objective, batch, taps)

    @contextmanager
    def part(self, batch: Batch, is_last: bool) -> Iterator[Batch]:
        tokens_BT, targets_BT = batch.inputs["tokens_BT"].to(self.device), batch.targets.to(self.device)
        n_tokens, n = tokens_BT.shape[1], 2 * self.mesh.size()
        others = [name for name in batch.inputs if name != "tokens_BT"]
        if others or n_tokens % n:
            raise ClearheadError(
                f"rows of {n_tokens} tokens with {', '.join(others) or 'nothing else'} can't be shared by "
                f"{self.mesh.size()} processes (run.scale.context): rows must be full, of running text "
                f"(batch.pack=plain), and a multiple of {n} tokens long"
            )
        place_1T = torch.arange(n_tokens, device=self.device)[None]
        buffers = [tokens_BT, targets_BT, place_1T]
        with context_parallel(self.mesh, buffers=buffers, buffer_seq_dims=[1, 1, 1], no_restore_buffers={*buffers}):
            self._places = Places(Positions(rows_BT=place_1T), n_tokens, place_1T.device)
            with self.lesson.part(Batch({"tokens_BT": tokens_BT}, targets_BT), is_last) as mine:
                yield mine

    def settle(self) -> None:
        self.lesson.settle()

    def moved(self) -> None:
        self.lesson.moved()

    def _tell(self, embed: nn.Module, args: tuple[Any, ...]) -> None:
        """Tokens stand where they stand in the whole row, for all that encodes positions."""
        args[1].places = self._places


def check(model: Transformer) -> None:
    """Refuse a model that has more than causal attention to move information between tokens.

    Raises:
        ClearheadError: naming the layer.
    """
    if model.encoder is not None:
        raise ClearheadError(
            "the tokens of a row can't be shared where there is an encoder; set run.scale.context to 1"
        )
    for i, block in enumerate(model.config.stack.blocks):
        if not _is_plain(block):
            raise ClearheadError(
                f"layers.{i} is not plain causal attention (no window, bias, sinks, soft-cap or dropout on its "
                "scores), and no other kind can share the tokens of a row; set run.scale.context to 1"
            )


def _is_plain(block: BlockConfig) -> bool:
    op = block.mixer.op
    if not isinstance(op, AttentionConfig) or op.mask.kind != "causal" or op.mask.window is not None:
        return False
    if op.scores.sinks or op.scores.softcap is not None or op.scores.dropout:
        return False
    return op.positions is None or (isinstance(op.positions, RotaryConfig) and not op.positions.depends_on_length)
