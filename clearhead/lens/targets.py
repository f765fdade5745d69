"""Which token's logit is asked about, where in the text, and whether a model has logits at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.arguments import Arguments
from clearhead.lens.views.labels import visible

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

Target = str | int | Sequence[str | int] | Tensor
"""A token as an id or as its text; or one a row."""


def check_vocabulary(model: Any, what: str) -> None:
    """Refuse a model whose stream nobody reads as tokens.

    Raises:
        ClearheadError: naming `what`, which can't be had, and why.
    """
    if not hasattr(model, "head"):
        raise ClearheadError(f"{what} needs one stack with a vocabulary head, and this model has two towers without")
    if model.head is None:
        gives = "labels" if len(model.labels) else "vectors"
        raise ClearheadError(f"{what} needs a vocabulary head, and this model gives {gives}, not tokens")


def check_whole(call: Arguments) -> None:
    """Refuse a call that gives less than a whole pass, of which parts would be missing."""
    for name in ("state", "last", "read", "documents"):
        if call.others.get(name) is not None:
            raise ClearheadError(f"give one text whole, without {name}=: what is looked for is in all of it")


def token_ids(model: Transformer, target: Target, n_rows: int = 1) -> Tensor:
    """The ids (B,) of one token a row; a single one is every row's.

    Raises:
        ClearheadError: a text of more than one token, an id out of range, or another number of them than rows.
    """
    if isinstance(target, Tensor):
        target = target.tolist()
    each = [target] if isinstance(target, str | int) else list(target)
    ids = [_one(model, token) for token in each]
    if len(ids) not in (1, n_rows):
        raise ClearheadError(f"there are {len(ids)} target tokens for {n_rows} rows; give one, or one a row")
    return torch.tensor(ids * (n_rows if len(ids) == 1 else 1), device=model.device)


def _one(model: Transformer, token: str | int) -> int:
    if isinstance(token, str):
        if model.tokenizer is None:
            raise ClearheadError(f"this model was loaded without a tokenizer; give the id of {token!r} instead")
        ids = model.tokenizer.encode(token, bos=False)
        if len(ids) != 1:
            pieces = " ".join(map(repr, model.tokenizer.pieces(ids))) or "none"
            raise ClearheadError(f"{token!r} must be one token, and is {len(ids)} ({pieces}); a space may be missing")
        token = int(ids[0])
    n = model.unembedding.shape[0]
    if not 0 <= token < n:
        raise ClearheadError(f"there is no token {token}; this model's are 0 to {n - 1}")
    return int(token)


def slots(position: int | Sequence[int], n_rows: int, n_tokens: int, call: Arguments | None = None) -> list[int]:
    """A slot of each row, counted from its end where negative.

    Raises:
        ClearheadError: it is not there, or there is padding in it.
    """
    each = [position] * n_rows if isinstance(position, int) else list(position)
    if len(each) != n_rows or not all(-n_tokens <= slot < n_tokens for slot in each):
        raise ClearheadError(f"position is {position}; there are {n_rows} rows of tokens 0 to {n_tokens - 1}")
    found = [slot % n_tokens for slot in each]
    present = None if call is None else call.others.get("present")
    if present is not None and not all(bool(present[row, slot]) for row, slot in enumerate(found)):
        raise ClearheadError(f"position {position} is padding in one of the rows; give a position for each")
    return found


def token_names(model: Transformer, ids: Tensor) -> list[str]:
    """What tokens are called, safe to print; those the tokenizer can't write (rows that fill a table up) by number."""
    flat: list[int] = ids.flatten().tolist()
    tokenizer = model.tokenizer
    if tokenizer is None:
        return [str(token) for token in flat]
    return [visible(tokenizer.pieces([token])[0]) if token < tokenizer.vocab_size else f"#{token}" for token in flat]


def logits_of(output: Any) -> Tensor:
    """The logits, of whatever a model returned: its only output, or that of its vocabulary head.

    Raises:
        ClearheadError: it has several, and no vocabulary head.
    """
    logits = output if isinstance(output, Tensor) else getattr(output, "tokens", None)
    if logits is None:
        raise ClearheadError(f"this model gives {', '.join(output._fields)}; a metric needs one output, or logits")
    return logits
