"""How well hidden tokens are told from those on either side."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from clearhead.errors import ClearheadError, UsageError
from clearhead.generation.prompts import window as context_of
from clearhead.model.transformer import Transformer
from clearhead.ops.losses import cross_entropy_sum
from clearhead.training.config import MaskingConfig
from clearhead.training.data.batches import Batch, collate, generator, marks_around
from clearhead.training.data.masking import Masker
from clearhead.training.data.rows import Row
from clearhead.training.objectives import MaskedTokens
from clearhead.training.trainer import evaluating

DEFAULT_WINDOW = 512
"""For models that name no length."""
BATCH_SLOTS = 4096


@dataclass(frozen=True)
class MaskedScores:
    """How well the hidden tokens of some texts were told."""

    n_tokens: int
    """The hidden ones."""
    n_right: int
    nats: float
    """Minus the sum of the natural logarithms of their probabilities."""

    @property
    def loss(self) -> float:
        """Nats a token."""
        return self.nats / self.n_tokens

    @property
    def accuracy(self) -> float:
        """The share of tokens that the model held to be the likeliest."""
        return self.n_right / self.n_tokens

    def summary(self) -> dict[str, Any]:
        """The numbers by name. The perplexity is that of the hidden tokens: no other model's can be set beside it that
        hides others.
        """
        return {
            "hidden_tokens": self.n_tokens,
            "loss": self.loss,
            "masked_perplexity": math.exp(min(self.loss, 700.0)),
            "accuracy": self.accuracy,
        }


def measure_masked(
    model: Transformer, batches: Iterable[Batch], *, progress: Callable[[int], Any] | None = None
) -> MaskedScores:
    """Have a model tell the hidden tokens of these batches.

    Args:
        model: one that sees both sides, with a head over tokens.
        batches: with targets (B, T) at what is hidden.
        progress: told after each batch how many slots it had.

    Raises:
        ClearheadError: nothing is hidden.
    """
    n = n_right = 0
    nats = 0.0
    objective = MaskedTokens()
    with evaluating(model):
        for batch in batches:
            rows_ND, targets_N, score, _ = objective.read(model, batch)
            scores_NV = score(rows_ND).float()
            total, _ = cross_entropy_sum(scores_NV, targets_N)
            n, nats = n + len(targets_N), nats + float(total)
            n_right += int((scores_NV.argmax(dim=-1) == targets_N).sum())
            if progress is not None:
                progress(batch.inputs["tokens_BT"].numel())
    if not n:
        raise ClearheadError("there is no text to evaluate on: no token is hidden")
    return MaskedScores(n, n_right, nats)


def hidden(
    model: Transformer, texts: Mapping[str, str], *, window: int | None = None, seed: int = 0
) -> Iterator[Batch]:
    """Texts in rows of at most `window` tokens between the tokenizer's marks, 15 % of each hidden as in training: the
    same ones for the same seed.

    Raises:
        ClearheadError: the model reads no text, or its tokenizer has no mask.
        UsageError: the window has no room for text.
    """
    tokenizer = model.tokenizer
    if tokenizer is None:
        raise ClearheadError("this model has no tokenizer, so it can't read text")
    before, after = marks_around(tokenizer)
    context = context_of(model.config)
    window = min(context or DEFAULT_WINDOW, DEFAULT_WINDOW) if window is None else window
    room = window - len(before) - len(after)
    if room < 1 or (context is not None and window > context):
        raise UsageError(
            f"window is {window}; it must be from {len(before) + len(after) + 1} to the {context or 'number of'} "
            "tokens the model reads"
        )
    masker = Masker(tokenizer, MaskingConfig())
    rows: list[Row] = []
    for text in texts.values():
        ids = tokenizer.encode(text, bos=False)
        for first in range(0, len(ids), room):
            row = np.array([*before, *ids[first : first + room], *after], np.int64)
            seen, targets = masker(row, generator(seed, len(rows)))
            rows.append({"tokens": seen, "targets": targets})
    rows.sort(key=lambda row: -len(row["tokens"]))
    while rows:
        n = max(1, BATCH_SLOTS // len(rows[0]["tokens"]))
        yield collate(rows[:n], tokenizer.pad_id or 0)
        rows = rows[n:]
