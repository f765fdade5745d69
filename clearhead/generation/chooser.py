"""Chooses the next token of every row of a batch, each by its own settings."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.generation.adjustments import Adjustments
from clearhead.generation.rows import Row
from clearhead.generation.scores import Scores
from clearhead.ops import sampling

_DRAFTED, _JUDGED = 2**40, 2**41
"""Added to a text's number in its batch: a draft is drawn and accepted by numbers that the text's own draw is not."""


@dataclass(frozen=True)
class Proposed:
    """A token that was drawn from something else, and the probabilities it was drawn with, (V,)."""

    token: int
    probs_V: Tensor


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

    def choose(self, scores: Scores, proposed: Proposed | None = None) -> Tensor:
        """A token a row, (B,); -1 for a row whose scores offer none. Of a single row, perhaps the token proposed."""
        logits_BC = self._adjusted(scores)
        if proposed is not None and not self._all_greedy:
            places_B = self._judged(logits_BC, scores.ids_BC, proposed)
        else:
            places_B = sampling.greedy(logits_BC) if self._all_greedy else self._drawn(logits_BC)
        tokens_B = places_B
        if scores.ids_BC is not None:
            ids_B = scores.ids_BC.gather(1, places_B.clamp(min=0)[:, None])[:, 0]
            tokens_B = torch.where(places_B < 0, places_B, ids_B)
        self._adjustments.note(tokens_B)
        return tokens_B

    def draft(self, scores: Scores) -> tuple[int, Tensor | None]:
        """A token for a single row, and the probabilities it was drawn with, (V,); none where it is the best one."""
        logits_1V = self._adjusted(scores)
        probs_V: Tensor | None = None
        if self._all_greedy:
            tokens_1 = sampling.greedy(logits_1V)
        else:
            filtered_1V = self._filtered(logits_1V)
            tokens_1 = sampling.draw(filtered_1V, self._numbers(_DRAFTED))
            probs_V = filtered_1V[0].softmax(-1)
        self._adjustments.note(tokens_1)
        return int(tokens_1), probs_V

    def _adjusted(self, scores: Scores) -> Tensor:
        if scores.ids_BC is not None:
            return scores.logits_BC
        return self._adjustments.apply(scores.logits_BC[:, : self._size])

    def _filtered(self, logits_BC: Tensor) -> Tensor:
        return sampling.adjust(
            logits_BC, temperature=self._temperature, top_k=self._top_k, top_p=self._top_p, min_p=self._min_p
        )

    def _numbers(self, stream: int = 0) -> list[float]:
        # The place in the text is the counter, so a text continued later draws what it would have drawn at once.
        return [sampling.uniform(row.config.sampling.seed, row.stream + stream, len(row.tokens)) for row in self._rows]

    def _drawn(self, logits_BC: Tensor) -> Tensor:
        drawn_B = sampling.draw(self._filtered(logits_BC), self._numbers())
        return torch.where(self._greedy_B, sampling.greedy(logits_BC), drawn_B) if self._some_greedy else drawn_B

    def _judged(self, logits_1C: Tensor, ids_1C: Tensor | None, proposed: Proposed) -> Tensor:
        """The place of the token proposed, or of one in its stead, so that each comes with its own probability."""
        filtered_1C = self._filtered(logits_1C)
        theirs_C = proposed.probs_V[: self._size]
        place = proposed.token
        if ids_1C is not None:
            theirs_C = theirs_C[ids_1C[0]].masked_fill(logits_1C[0].isinf(), 0.0)
            there = (ids_1C[0] == proposed.token).nonzero()
            place = int(there[0]) if len(there) else sampling.NOTHING_LEFT
        if place >= 0 and self._numbers(_JUDGED)[0] < sampling.acceptance(filtered_1C[0], theirs_C, place):
            return torch.tensor([place], device=logits_1C.device)
        return sampling.draw(sampling.what_is_left(filtered_1C[0], theirs_C)[None], self._numbers())
