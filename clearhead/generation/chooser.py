"""Chooses the next token of every row of a batch, each by its own settings."""

from __future__ import annotations

import torch
from torch import Tensor

from clearhead.generation.rows import Row
from clearhead.ops import sampling


class Chooser:
    """The settings of a batch's rows side by side. Made anew when a row leaves the batch."""

    def __init__(self, rows: list[Row], size: int, device: torch.device) -> None:
        """
        Args:
            rows: the rows, in the order of the batch.
            size: how many token ids may be drawn: the tokenizer's, which may be fewer than the model has scores for.
            device: where the scores are.
        """
        self._rows = rows
        self._size = size
        sampled = [row.config.sampling for row in rows]
        self._temperature = [s.temperature for s in sampled]
        self._top_k = [s.top_k for s in sampled]
        self._top_p = [s.top_p for s in sampled]
        self._min_p = [s.min_p for s in sampled]
        self._greedy_B = torch.tensor([t == 0 for t in self._temperature], device=device)
        self._some_greedy = any(t == 0 for t in self._temperature)
        self._all_greedy = all(t == 0 for t in self._temperature)
        self._bias = rows[0].config.penalties.bias
        self._seen_BV: Tensor | None = None
        self._drawn_BV: Tensor | None = None
        if any(row.config.penalties.counts for row in rows):
            self._seen_BV = _counts([row.tokens for row in rows], size, device)
            self._drawn_BV = _counts([[row.tokens[i] for i in row.drawn] for row in rows], size, device)

    def choose(self, logits_BV: Tensor) -> Tensor:
        """A token a row, (B,); -1 for a row whose scores offer none."""
        logits_BV = logits_BV[:, : self._size]
        if self._bias is not None:
            logits_BV = sampling.add_bias(logits_BV, self._bias)
        logits_BV = self._penalised(logits_BV)
        tokens_B = sampling.greedy(logits_BV) if self._all_greedy else self._drawn(logits_BV)
        if self._seen_BV is not None and self._drawn_BV is not None:
            for count_BV in (self._seen_BV, self._drawn_BV):
                count_BV.scatter_add_(1, tokens_B.clamp(min=0)[:, None], count_BV.new_ones(len(tokens_B), 1))
        return tokens_B

    def _penalised(self, logits_BV: Tensor) -> Tensor:
        if self._seen_BV is None or self._drawn_BV is None:
            return logits_BV
        penalties = [row.config.penalties for row in self._rows]
        logits_BV = sampling.penalise_repeats(logits_BV, self._seen_BV, [p.repetition for p in penalties])
        return sampling.penalise_counts(
            logits_BV, self._drawn_BV, [p.presence for p in penalties], [p.frequency for p in penalties]
        )

    def _drawn(self, logits_BV: Tensor) -> Tensor:
        adjusted_BV = sampling.adjust(
            logits_BV, temperature=self._temperature, top_k=self._top_k, top_p=self._top_p, min_p=self._min_p
        )
        # The place in the text is the counter, so a text continued later draws what it would have drawn at once.
        numbers = [sampling.uniform(row.config.sampling.seed, row.stream, len(row.tokens)) for row in self._rows]
        drawn_B = sampling.draw(adjusted_BV, numbers)
        return torch.where(self._greedy_B, sampling.greedy(logits_BV), drawn_B) if self._some_greedy else drawn_B


def _counts(rows: list[list[int]], size: int, device: torch.device) -> Tensor:
    """How often each token stands in each row, (B, V)."""
    count_BV = torch.zeros(len(rows), size, device=device)
    for i, ids in enumerate(rows):
        within = [token for token in ids if token < size]
        count_BV[i] = torch.bincount(torch.tensor(within, dtype=torch.long, device=device), minlength=size)
    return count_BV
