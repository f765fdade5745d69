"""How the matrices of a model are kept once they are read: as plain numbers, or in blocks of few bits."""

from __future__ import annotations

from typing import Literal, Protocol, get_args

import torch
from torch import Tensor, nn

from clearhead.checkpoints.checkpoint import Checkpoint
from clearhead.checkpoints.gguf_checkpoint import GGUFCheckpoint
from clearhead.errors import ClearheadError, UsageError
from clearhead.families.weights import Match
from clearhead.model.heads import TokenHead
from clearhead.model.transformer import Transformer
from clearhead.nn.embedding import Embedding
from clearhead.nn.experts import Experts
from clearhead.nn.linear import Linear
from clearhead.ops.blocks import SIZES
from clearhead.ops.quantise import quantise
from clearhead.ops.quantised import NATIVE, PAIR, QuantisedTensor

Weights = Literal["plain", "stored", "auto", "int8", "int4"]
SMALLEST = 2**14
"""Numbers in a matrix below which it makes no difference how it is kept."""


class Keeping(Protocol):
    """What is kept in blocks. Whatever is not stays as it is."""

    def as_stored(
        self, match: Match, model: Transformer, checkpoint: Checkpoint, dtype: torch.dtype
    ) -> list[Tensor] | None:
        """The parameters of a row as blocks of the file."""
        ...

    def kind(self, model: Transformer, name: str) -> str | None:
        """The blocks that a parameter is made into after it was read."""
        ...


class Plain:
    """Everything as plain numbers."""

    def as_stored(
        self, match: Match, model: Transformer, checkpoint: Checkpoint, dtype: torch.dtype
    ) -> list[Tensor] | None:
        return None

    def kind(self, model: Transformer, name: str) -> str | None:
        return None


class Stored(Plain):
    """What a GGUF file has in blocks that can be multiplied as they are, where the file maps it into memory."""

    def as_stored(
        self, match: Match, model: Transformer, checkpoint: Checkpoint, dtype: torch.dtype
    ) -> list[Tensor] | None:
        if not isinstance(checkpoint, GGUFCheckpoint):
            raise ClearheadError(
                f'{checkpoint.where} is no GGUF file, so it has no blocks to keep; say weights="int8" or "int4" to '
                "make them, or leave weights= out"
            )
        infos = [checkpoint.tensors[file] for file in match.files]
        (kind, *others) = {info.dtype for info in infos}
        if others or kind not in NATIVE or not match.op.moves_rows or any(info.shape[-1] % PAIR for info in infos):
            return None
        blocks = [checkpoint.blocks(file) for file in match.files]
        width = blocks[0].shape[-1]
        shapes = [(*model.get_parameter(name).shape[:-1], width) for name in match.parameters]
        rows = match.op.load(blocks, shapes, model.config)
        return [QuantisedTensor(raw.contiguous(), str(kind), dtype) for raw in rows]


class Auto(Stored):
    """As stored, from a checkpoint that has blocks; as plain numbers from any other."""

    def as_stored(
        self, match: Match, model: Transformer, checkpoint: Checkpoint, dtype: torch.dtype
    ) -> list[Tensor] | None:
        in_blocks = isinstance(checkpoint, GGUFCheckpoint)
        return super().as_stored(match, model, checkpoint, dtype) if in_blocks else None


class Made(Plain):
    """Matrices that are multiplied, in blocks of so many bits; what tokens are read from and scored by in 8."""

    def __init__(self, bits: int) -> None:
        self.bits = bits

    def kind(self, model: Transformer, name: str) -> str | None:
        owner, parameter = model.get_submodule(name.rpartition(".")[0]), model.get_parameter(name)
        n_in = parameter.shape[-1]
        if parameter.ndim < 2 or parameter.numel() < SMALLEST or n_in % PAIR:
            return None
        if isinstance(owner, TokenHead) or (isinstance(owner, nn.Embedding) and _is_of_tokens(model, parameter)):
            return "Q8_0"
        if not (isinstance(owner, Linear) or (isinstance(owner, Experts) and parameter.ndim == 3)):
            return None
        return "Q8_0" if self.bits == 8 else "Q4_K" if n_in % SIZES["Q4_K"].block == 0 else "Q4_0"


def _is_of_tokens(model: Transformer, parameter: Tensor) -> bool:
    return any(
        isinstance(m, Embedding) and m.tokens is not None and m.tokens.weight is parameter for m in model.modules()
    )


KEEPING: dict[str, Keeping] = {
    "plain": Plain(),
    "stored": Stored(),
    "auto": Auto(),
    "int8": Made(8),
    "int4": Made(4),
}


def keeping_of(weights: str, device: torch.device) -> Keeping:
    """How `weights=` wants them kept.

    Raises:
        UsageError: it is none of `Weights`, or the device has no product with blocks.
    """
    if weights not in KEEPING:
        raise UsageError(f"weights is {weights!r}; there are {', '.join(get_args(Weights))}")
    if device.type == "cpu":
        return KEEPING[weights]
    if weights not in ("plain", "auto"):
        raise UsageError(f'weights="{weights}" is for the CPU, and the device is {device}; leave one of them out')
    return KEEPING["plain"]


def in_blocks(parameter: Tensor, kind: str) -> QuantisedTensor:
    """A parameter made into blocks of a kind."""
    return QuantisedTensor(quantise(parameter.detach(), kind), kind, parameter.dtype)
