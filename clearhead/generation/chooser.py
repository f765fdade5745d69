"""Chooses the next token of every row of a batch, each by its own settings."""

from __future__ import annotations

import torch
from torch import Tensor

from clearhead.generation.adjustments import Adjustments
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
        self._adjustments = Adjustments(rows, size, device)
        sampled = [row.config.sampling for row in rows]
        self._temperature = [s.temperature for s in sampled]
        self._top_k = [s.top_k for s in sampled]
        self._top_p = [s.top_p for s in sampled]
        self._min_p = [s.min_p for s in sampled]
        self._greedy_B = torch.tensor([t == 0 for t in self._temperature], device=device)
        self._some_greedy = any(t == 0 for t in self._temperature)
        self._all_greedy = all(t == 0 for t in self._temperature)

    def choose(self, logits_BV: Tensor) -> Tensor:
        """A token a row, (B,); -1 for a row whose scores offer none."""
        logits_BV = self._adjustments.apply(logits_BV[:, : self._size])
        tokens_B = sampling.greedy(logits_BV) if self._all_greedy else self._drawn(logits_BV)
        self._adjustments.note(tokens_B)
        return tokens_B

    def _drawn(self, logits_BV: Tensor) -> Tensor:
        adjusted_BV = sampling.adjust(
            logits_BV, temperature=self._temperature, top_k=self._top_k, top_p=self._top_p, min_p=self._min_p
        )
        # The place in the text is the counter, so a text continued later draws what it would have drawn at once.
        numbers = [sampling.uniform(row.config.sampling.seed, row.stream, len(row.tokens)) for row in self._rows]
        drawn_B = sampling.draw(adjusted_BV, numbers)
        return torch.where(self._greedy_B, sampling.greedy(logits_BV), drawn_B) if self._some_greedy else drawn_B
