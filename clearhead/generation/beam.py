"""Beam search: follow the best few texts at once, and answer with the best of those that ended.

As in the `transformers` package, with which it agrees text for text. In each step the best (number of end tokens + 1) *
n_beams continuations of a prompt's live texts are looked at, so that n_beams of them go on whichever end. One that ends
counts only if it is among the best n_beams. When no more is to be hoped for is `ops.beam.most_worth`'s to say.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.generation.adjustments import Adjustments
from clearhead.generation.drawing import Step, likeliest, no_choice
from clearhead.generation.options import BeamConfig, RunConfig
from clearhead.generation.rows import Row
from clearhead.generation.scores import Scores
from clearhead.ops.beam import grow, most_worth, worth
from clearhead.state import State

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer


class Search:
    """The texts under way behind one prompt."""

    def __init__(self, prompt: Row, config: BeamConfig) -> None:
        self.live = [prompt]
        self.parents = [0]
        """Which of the texts before the last step each live one grew from."""
        self._sums = [0.0]
        self._ended: list[Row] = []
        self._prompt = prompt
        self._config = config

    def grow(self, score_NV: Tensor, own_NV: Tensor) -> None:
        """Write one token behind each live text, and keep the best.

        Args:
            score_NV: what is added to a text's sum with each token, (live texts, V).
            own_NV: the log-probabilities of the model itself, to report.
        """
        n = self._config.n_beams
        sum_N = torch.tensor(self._sums, dtype=score_NV.dtype, device=score_NV.device)
        sum_K, parent_K, token_K = grow(sum_N, score_NV, max(2, 1 + len(self._prompt.ends)) * n)
        own_K = own_NV[parent_K, token_K]
        before, self.live, self._sums, self.parents = self.live, [], [], []
        columns = (x.tolist() for x in (sum_K, parent_K, token_K, own_K))
        for place, (total, parent, token, own) in enumerate(zip(*columns, strict=True)):
            if len(self.live) == n and place >= n:
                break
            row = before[parent].fork()
            row.take(token)
            if row.logprobs is not None:
                row.logprobs.append(own)
            if row.finish_reason is None:
                if len(self.live) < n:
                    self.live.append(row)
                    self._sums.append(total)
                    self.parents.append(parent)
            elif place < n:
                row.score = worth(total, len(row.new), self._config.length_penalty)
                self._ended.append(row)
        self._ended = sorted(self._ended, key=lambda row: row.score, reverse=True)[:n]

    @property
    def best(self) -> list[Row]:
        """The texts that have ended, best first."""
        return self._ended[: self._config.n_best]

    @property
    def done(self) -> bool:
        """Whether nothing is left to write, or nothing better to be hoped for."""
        config = self._config
        if not self.live:
            return True
        if len(self._ended) < config.n_beams:
            return False
        n_new, n_most = len(self.live[0].new), self._prompt.most_new
        hope = most_worth(self._sums[0], n_new, n_most, config.length_penalty, config.early_stopping)
        return config.early_stopping is True or hope <= self._ended[-1].score


class Beams:
    """A search behind each prompt of a batch; those that are done leave it."""

    def __init__(self, model: Transformer, rows: list[Row], run: RunConfig, size: int, config: BeamConfig) -> None:
        """`size` is how many token ids may be chosen."""
        self._model = model
        self._run = run
        self._size = size
        self._prompts = rows
        for row in rows:
            row.beams = [row]
            if run.logprobs or run.top_logprobs:
                row.logprobs, row.top_logprobs = [], [] if run.top_logprobs else None
        self._going = [i for i, row in enumerate(rows) if row.finish_reason is None]
        self._searches = [Search(rows[i], config) for i in self._going]

    def begin(self, state: State) -> Step:
        return Step(self._going)

    def write(self, scores: Scores, state: State) -> Step:
        logits_BV = scores.all_BV
        rows = [row for search in self._searches for row in search.live]
        own_BV = logits_BV.float().log_softmax(-1)
        score_BV = Adjustments(rows, self._size, logits_BV.device).apply(own_BV[:, : self._size])
        if not bool((score_BV.amax(-1) > -math.inf).any()) or bool(own_BV.isnan().any()):
            raise no_choice(self._model, rows[0])
        if self._run.top_logprobs:
            for row, top in zip(rows, likeliest(logits_BV, self._run.top_logprobs), strict=True):
                assert row.top_logprobs is not None
                row.top_logprobs.append(top)
        order, tokens, start, same = [], [], 0, True
        for i, search in zip(self._going, self._searches, strict=True):
            n_before = len(search.live)
            part = slice(start, start + n_before)
            search.grow(score_BV[part], own_BV[part])
            same = same and not search.done and len(search.live) == n_before
            if search.done:
                if not search.best:
                    raise no_choice(self._model, self._prompts[i])
                self._prompts[i].beams = search.best
            else:
                order += [start + parent for parent in search.parents]
                tokens += [row.new[-1] for row in search.live]
            start += n_before
        left = [(i, search) for i, search in zip(self._going, self._searches, strict=True) if not search.done]
        self._going, self._searches = [i for i, _ in left], [search for _, search in left]
        # Where every text goes on in its place, nothing need be copied.
        kept = None if order == list(range(start)) else order
        return Step(kept, torch.tensor(tokens, device=logits_BV.device), same_source=same)
