"""From what a caller may give as a prompt to lists of token ids that fit the model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.config import DynamicScaling, RotaryConfig, TransformerConfig
from clearhead.errors import ClearheadError, UsageError

if TYPE_CHECKING:
    from clearhead.generation.options import Limits
    from clearhead.model.transformer import Transformer

Prompt = str | Sequence[int] | Sequence[str] | Sequence[Sequence[int]] | Tensor | Sequence[Tensor]


def read_prompt(
    model: Transformer, prompt: Prompt, present: Tensor | None, *, continued: bool = False
) -> tuple[list[list[int]], bool]:
    """The token ids of each prompt, and whether there were several.

    An empty prompt is the model's first token alone; continuing a text it adds nothing.
    """
    rows, many = read_texts(model, prompt, present, continued=continued)
    return [ids if ids or continued else _first_token(model) for ids in rows], many


def read_texts(
    model: Transformer, prompt: Prompt, present: Tensor | None, *, continued: bool = False
) -> tuple[list[list[int]], bool]:
    """The token ids of each text, and whether there were several.

    A text, a list of ids and a one-dimensional tensor are one; a list of texts or of lists and a tensor (rows, length)
    are several. Texts get the marks that the tokenizer puts around one, unless they are `continued`.
    """
    if present is not None and not isinstance(prompt, Tensor):
        raise UsageError("present goes with a prompt that is a tensor of token ids")
    if isinstance(prompt, Tensor):
        rows, many = _from_tensor(prompt, present)
    elif isinstance(prompt, str):
        rows, many = [_encoded(model, prompt, continued)], False
    elif len(prompt) == 0 or not isinstance(prompt[0], (str, list, tuple, Tensor)):
        rows, many = [_ids(prompt)], False
    else:
        rows = [_encoded(model, one, continued) if isinstance(one, str) else _ids(one) for one in prompt]
        many = True
    return rows, many


def _encoded(model: Transformer, text: str, continued: bool) -> list[int]:
    if model.tokenizer is None:
        raise ClearheadError("this model has no tokenizer, so it can't read text; give token ids")
    if continued and not text:
        return []
    ids: list[int] = model.tokenizer.encode(text, bos=not continued)
    return ids


def _ids(values: Any) -> list[int]:
    ids = values.tolist() if isinstance(values, Tensor) else list(values)
    if not all(isinstance(i, int) and not isinstance(i, bool) for i in ids):
        raise UsageError(f"a prompt is text or token ids, whole numbers; this one holds {ids[:4]!r}")
    return ids


def _from_tensor(tokens: Tensor, present: Tensor | None) -> tuple[list[list[int]], bool]:
    if tokens.ndim not in (1, 2) or tokens.dtype.is_floating_point or tokens.dtype == torch.bool:
        raise UsageError(
            f"a prompt tensor holds token ids, (length) or (rows, length); this is {tokens.dtype} of shape "
            f"{tuple(tokens.shape)}"
        )
    if present is None:
        present = torch.ones_like(tokens, dtype=torch.bool)
    elif present.shape != tokens.shape:
        raise UsageError(f"present has shape {tuple(present.shape)} and the prompt {tuple(tokens.shape)}")
    rows_BT, there_BT = (x[None] if tokens.ndim == 1 else x for x in (tokens, present.to(tokens.device).bool()))
    return [row_T[there_T].tolist() for row_T, there_T in zip(rows_BT, there_BT, strict=True)], tokens.ndim == 2


def _first_token(model: Transformer) -> list[int]:
    bos = model.tokenizer.bos_id if model.tokenizer is not None else model.config.ids.bos
    if bos is None:
        raise ClearheadError("the prompt is empty and this model has no token to begin with; give at least one token")
    return [bos]


def window(config: TransformerConfig) -> int | None:
    """How many tokens a text may have: the length the model was made for, times the factor it stretches to where
    its rotary frequencies follow the length ("dynamic" scaling, which begins where the trained length ends).
    """
    rotaries = (op.positions for op in (block.mixer.op for block in config.stack.blocks) if hasattr(op, "positions"))
    factors = [
        rotary.scaling.factor
        for rotary in rotaries
        if isinstance(rotary, RotaryConfig) and isinstance(rotary.scaling, DynamicScaling)
    ]
    return config.context if config.context is None else int(config.context * max(factors, default=1.0))


def fit(ids: list[int], limits: Limits, *, context: int | None, n_before: int, bos: int | None) -> list[int]:
    """The prompt as the model's window allows: as it is, or cut where that was asked for.

    "cut_left" keeps the newest tokens, the first one too when it is the beginning-of-text token, and leaves room for
    the new tokens asked for, but not more than half of the window.

    Raises:
        ClearheadError: the prompt is longer than the window and may not be cut.
    """
    if context is None or n_before + len(ids) <= context:
        return ids
    if n_before or limits.overflow == "refuse":
        what = f"the prompt is {len(ids)} tokens" + (f" behind {n_before} kept ones" if n_before else "")
        cut = 'overflow="cut_left", on the command line --overflow cut_left'
        remedy = "start anew with a shorter text" if n_before else f"shorten it, or have it cut ({cut})"
        raise ClearheadError(f"{what} and this model's window {context}; {remedy}")
    n_kept = context - min(limits.max_new_tokens, context // 2)
    head = ids[:1] if ids[0] == bos and n_kept > 1 else []
    return head + ids[len(ids) - (n_kept - len(head)) :]
