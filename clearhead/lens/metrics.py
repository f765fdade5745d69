"""What a sweep measures: one number a row, of the logits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.targets import Target, check_vocabulary, logits_of, token_ids

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

Metric = Callable[[Tensor], Tensor]
"""From logits (B, T, V), or what else a model without a vocabulary gives, to one number a row (B,), or one for all."""


@dataclass(frozen=True, eq=False)
class LogitDifference:
    """How much likelier `answer_B` is than `other_B` at one slot, as a difference of logits (B,)."""

    answer_B: Tensor
    other_B: Tensor
    position: int = -1

    def __call__(self, logits_BTV: Tensor) -> Tensor:
        logits_BV = logits_BTV[:, self.position]
        rows = torch.arange(logits_BV.shape[0], device=logits_BV.device)
        return logits_BV[rows, self.answer_B] - logits_BV[rows, self.other_B]


def logit_difference(model: Transformer, answer: Target, other: Target, position: int = -1) -> LogitDifference:
    """The metric of most patching: the logit of one answer less that of another, each a token, or one a row.

    Raises:
        ClearheadError: an answer that is not one token of this model, or no vocabulary head.
    """
    check_vocabulary(model, "a difference of logits")
    n_rows = max(_n_rows(answer), _n_rows(other))
    return LogitDifference(token_ids(model, answer, n_rows), token_ids(model, other, n_rows), position)


def measured(metric: Metric, output: Any) -> Tensor:
    """The mean of a metric over the rows, as a scalar.

    Raises:
        ClearheadError: it is not a number.
    """
    value = torch.as_tensor(metric(logits_of(output))).mean()
    if not bool(value.isfinite()):
        raise ClearheadError(f"the metric is {float(value)}; it must give finite numbers")
    return value


def _n_rows(target: Target) -> int:
    return 1 if isinstance(target, str | int) else len(target)
