"""Writing one token behind every row at a time: the likeliest one, or one drawn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.generation.chooser import Chooser, Proposed
from clearhead.generation.kept import Kept, copy_state
from clearhead.generation.options import RunConfig
from clearhead.generation.rows import Row
from clearhead.generation.scores import Scores
from clearhead.ops import sampling
from clearhead.state import State

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer


@dataclass(frozen=True)
class Step:
    """How the batch goes on."""

    rows: list[int] | None
    """Which rows of the batch, in which order, a row perhaps several times; None: all, as they are."""
    tokens_B: Tensor | None = None
    """What each of those reads next; None: nothing, before the first step."""
    same_source: bool = False
    """Whether each takes the place of one with the same source."""


class Writer(Protocol):
    """What turns scores into texts, step by step."""

    def begin(self, state: State) -> Step:
        """Which rows are to be written on at all."""
        ...

    def write(self, scores: Scores, state: State) -> Step:
        """Take the scores behind every row of the batch; `state` is what the model has read."""
        ...


class Drawing:
    """Each row by itself; those that end leave the batch."""

    def __init__(self, model: Transformer, rows: list[Row], run: RunConfig, size: int) -> None:
        """`size` is how many token ids may be drawn."""
        self._model = model
        self._live = rows
        self._run = run
        self._size = size
        self._wants_logprobs = run.logprobs or run.top_logprobs > 0
        self._chooser: Chooser | None = None
        if self._wants_logprobs:
            for row in rows:
                row.logprobs = []
                row.top_logprobs = [] if run.top_logprobs else None

    def begin(self, state: State) -> Step:
        return Step(self._without_ended(state))

    def write(self, scores: Scores, state: State, proposed: Proposed | None = None) -> Step:
        """`proposed`: of a single row, what a draft says comes next, if that was drawn."""
        if self._chooser is None:
            self._chooser = Chooser(self._live, self._size, scores.logits_BC.device)
        tokens_B = self._chooser.choose(scores, proposed)
        tokens = tokens_B.tolist()
        if min(tokens) < 0:
            raise no_choice(self._model, self._live[tokens.index(min(tokens))])
        if self._wants_logprobs:
            self._report(scores.all_BV, tokens_B)
        for row, token in zip(self._live, tokens, strict=True):
            row.take(token)
        going = self._without_ended(state)
        return Step(going, tokens_B if going is None else tokens_B[going])

    def _without_ended(self, state: State) -> list[int] | None:
        """Let rows that ended go; which of the batch stay, None where all do."""
        going = [i for i, row in enumerate(self._live) if row.finish_reason is None]
        if len(going) == len(self._live):
            return None
        if self._run.keep:
            _keep(self._live, state)
        self._live, self._chooser = [self._live[i] for i in going], None
        return going

    def _report(self, logits_BV: Tensor, tokens_B: Tensor) -> None:
        """Note the log-probabilities of the tokens chosen, and of the likeliest ones."""
        for row, value in zip(self._live, sampling.log_probs(logits_BV, tokens_B).tolist(), strict=True):
            assert row.logprobs is not None
            row.logprobs.append(value)
        if self._run.top_logprobs:
            for row, top in zip(self._live, likeliest(logits_BV, self._run.top_logprobs), strict=True):
                assert row.top_logprobs is not None
                row.top_logprobs.append(top)


def likeliest(logits_BV: Tensor, n_top: int) -> list[dict[int, float]]:
    """The likeliest tokens of each row with their log-probabilities, best first."""
    best = logits_BV.float().log_softmax(-1).topk(min(n_top, logits_BV.shape[-1]), dim=-1)
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [dict(zip(ids, values, strict=True)) for ids, values in pairs]


def no_choice(model: Transformer, row: Row) -> ClearheadError:
    """The error for a row whose scores offer no token."""
    if row.config.forbids:
        return ClearheadError(
            "no token is left to choose: logit_bias, or the bans of the model's generation config (follow_config=False "
            "leaves them out), forbid all of them, or the scores are NaN"
        )
    where = f" loaded from {model.origin.where}" if getattr(model.origin, "where", None) else ""
    return ClearheadError(
        f"the model{where} gave NaN where scores of the next token should be: its weights are damaged, or too large "
        f"for {str(model.dtype).removeprefix('torch.')}; load it anew, or with dtype=torch.float32"
    )


def _keep(rows: list[Row], state: State) -> None:
    """Hand each row that has ended the memory of its text."""
    for i, row in enumerate(rows):
        if row.finish_reason is not None and row.kept is None:
            own = state if len(rows) == 1 else copy_state(state, i)
            n_read = len(row.tokens) - (1 if row.new else 0)
            row.kept = Kept(
                state=own,
                tokens=list(row.tokens),
                n_read=n_read,
                drawn=list(row.drawn),
                length=own.length,
                stream=row.stream,
            )
