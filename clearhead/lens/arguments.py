"""What people hand to a lens (text, ids, a tensor, a dict) as what a model is called with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.places import Slots, slots_of

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

Inputs = str | Sequence[int] | Tensor | Mapping[str, Any]


@dataclass(frozen=True)
class Arguments:
    """A call of a model: `model(tokens_BT, **others)`; no tokens where a model takes none."""

    tokens_BT: Tensor | None
    others: dict[str, Any]
    slots: dict[str, Slots] = field(default_factory=dict)
    """What each stack reads, by its path."""

    def call(self, model: Transformer, **options: Any) -> Any:
        positional = () if self.tokens_BT is None else (self.tokens_BT,)
        return model(*positional, **self.others, **options)


def arguments(model: Transformer, inputs: Inputs) -> Arguments:
    """A text, ids, ids (T,) or (B, T) as a tensor, or a mapping of all that `model(...)` takes with "tokens" among it.

    In a mapping `source` may be text too, and `pixels` and `frames` may be pictures and sounds, which are prepared as
    the model's folder says.

    Raises:
        ClearheadError: there is nothing to look at, it is text and the model has no tokenizer, or it is longer than
            the model's window.
    """
    others = dict(inputs) if isinstance(inputs, Mapping) else {}
    tokens = others.pop("tokens", None) if isinstance(inputs, Mapping) else inputs
    if "source" in others:
        others["source"] = _tokens(model, others["source"])
    for name, prepare in (("pixels", _pictures), ("frames", _sounds)):
        if name in others and not isinstance(others[name], Tensor):
            others[name] = prepare(model, others[name])
    call = Arguments(None if tokens is None else _tokens(model, tokens), others)
    return replace(call, slots=slots_of(model, call))


def _pictures(model: Transformer, pictures: Any) -> Tensor:
    from clearhead.inputs.images import ImageProcessor

    return ImageProcessor.from_folder(_folder(model, "pictures"))(pictures).to(model.device)


def _sounds(model: Transformer, sounds: Any) -> Tensor:
    from clearhead.inputs.audio import AudioProcessor

    return AudioProcessor.from_folder(_folder(model, "sounds"))(sounds).to(model.device)


def _folder(model: Transformer, what: str) -> str:
    """Where the model came from, which says how its inputs are prepared."""
    if model.origin is None:
        raise ClearheadError(f"a model that was not loaded does not say how {what} are prepared; give tensors")
    return str(model.origin.where)


def _tokens(model: Transformer, tokens: Any) -> Tensor:
    if isinstance(tokens, str):
        if not tokens:
            raise ClearheadError("the text is empty; give at least one word to look at")
        if model.tokenizer is None:
            raise ClearheadError("this model was loaded without a tokenizer; give token ids instead of text")
        tokens = model.tokenizer.encode(tokens)
    ids = torch.as_tensor(tokens, device=model.device)
    if ids.numel() == 0:
        raise ClearheadError("there are no tokens to look at; give at least one")
    ids_BT = ids[None] if ids.dim() == 1 else ids
    if ids_BT.dim() != 2 or ids_BT.dtype.is_floating_point or ids_BT.dtype == torch.bool:
        kind = str(ids.dtype).removeprefix("torch.")
        raise ClearheadError(f"tokens must be ids of shape (T,) or (B, T), not {kind} {tuple(ids.shape)}")
    return ids_BT.long()
