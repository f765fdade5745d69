"""Which word of the source a model looks at while it writes each word of the target."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.generation.source import beginning
from clearhead.lens.record import look
from clearhead.model.transformer import Transformer

CROSS = "layers.*.cross.pattern"


@dataclass(frozen=True)
class Alignment:
    """The patterns of every head that looks at the source, as a translation is read."""

    source: tuple[str, ...]
    """The tokens that are looked at."""
    target: tuple[str, ...]
    """The tokens that are written."""
    patterns_LHTS: Tensor
    """By layer and head: row t is where the decoder looks when it writes target[t]."""

    @property
    def mean_TS(self) -> Tensor:
        """Over all heads of all layers."""
        return self.patterns_LHTS.mean(dim=(0, 1))

    def found(self, written: str) -> str:
        """The source token that is looked at most, where `written` is written first."""
        return self.source[int(self.mean_TS[self.target.index(written)].argmax())]


def align(model: Transformer, source: str, target: str) -> Alignment:
    """Look at the source while `target` is written.

    Raises:
        ClearheadError: the model has no encoder beside its decoder, or no tokenizer.
    """
    tokenizer = model.tokenizer
    if model.config.encoder is None or model.config.decoder is None:
        raise ClearheadError("this model has no encoder beside a decoder, so it looks at no source")
    if tokenizer is None:
        raise ClearheadError("this model has no tokenizer, so it can't read text")
    read, written = tokenizer.encode(source), tokenizer.encode(target, bos=False)
    start = beginning(model, {}, None)
    inputs = {"tokens": torch.tensor([[*start, *written]]), "source": torch.tensor([read])}
    seen = look(model, inputs, CROSS)
    patterns = torch.stack([seen[name][0] for name in seen])[:, :, len(start) - 1 : -1]
    pieces = [piece.removeprefix("·") for piece in tokenizer.pieces(read)]
    return Alignment(tuple(pieces), tuple(piece.removeprefix("·") for piece in tokenizer.pieces(written)), patterns)
