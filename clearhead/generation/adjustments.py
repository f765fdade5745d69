"""What is added to, taken from and forbidden in the scores of a batch's rows before a token is chosen."""

from __future__ import annotations

import torch
from torch import Tensor

from clearhead.generation.rows import Row
from clearhead.ops import sampling


class Adjustments:
    """The bias, the penalties and the rules of a batch's rows. Made anew when the rows are others."""

    def __init__(self, rows: list[Row], size: int, device: torch.device) -> None:
        """
        Args:
            rows: the rows, in the order of the batch.
            size: how many token ids may be chosen.
            device: where the scores are.
        """
        self._rows = rows
        self._penalties = [row.config.penalties for row in rows]
        self._bias = self._penalties[0].bias
        self._rules = rows[0].config.rules
        self._seen_BV: Tensor | None = None
        self._drawn_BV: Tensor | None = None
        if any(penalty.counts for penalty in self._penalties):
            self._seen_BV = _counts([row.tokens for row in rows], size, device)
            self._drawn_BV = _counts([[row.tokens[i] for i in row.drawn] for row in rows], size, device)

    def apply(self, score_BV: Tensor) -> Tensor:
        """The scores to choose by."""
        if self._bias is not None:
            score_BV = sampling.add_bias(score_BV, self._bias)
        if self._seen_BV is not None and self._drawn_BV is not None:
            score_BV = sampling.penalise_repeats(score_BV, self._seen_BV, [p.repetition for p in self._penalties])
            score_BV = sampling.penalise_counts(
                score_BV,
                self._drawn_BV,
                [p.presence for p in self._penalties],
                [p.frequency for p in self._penalties],
            )
        return self._rules.apply(score_BV, self._rows)

    def note(self, tokens_B: Tensor) -> None:
        """Count the tokens chosen."""
        if self._seen_BV is not None and self._drawn_BV is not None:
            for count_BV in (self._seen_BV, self._drawn_BV):
                count_BV.scatter_add_(1, tokens_B.clamp(min=0)[:, None], count_BV.new_ones(len(tokens_B), 1))


def _counts(rows: list[list[int]], size: int, device: torch.device) -> Tensor:
    """How often each token stands in each row, (B, V)."""
    count_BV = torch.zeros(len(rows), size, device=device)
    for i, ids in enumerate(rows):
        within = [token for token in ids if token < size]
        count_BV[i] = torch.bincount(torch.tensor(within, dtype=torch.long, device=device), minlength=size)
    return count_BV
