"""The loop: read the prompts, then a token for every row, until each row has ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.generation.ahead import Pace, Reading, write_ahead
from clearhead.generation.beam import Beams
from clearhead.generation.drafts import Drafter, Lookup, Smaller
from clearhead.generation.drawing import Drawing, Step, Writer
from clearhead.generation.options import BeamConfig, Faster, RunConfig
from clearhead.generation.prefix import Start
from clearhead.generation.rows import Row
from clearhead.generation.scores import Scores
from clearhead.generation.shortlist import Shortlist
from clearhead.generation.source import Source
from clearhead.nn.packing import packed
from clearhead.state import State

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

_ROOM_AHEAD = 1024
"""Tokens a new state makes room for at most beyond the prompt; it grows when more are drawn."""

PACKS_FROM = 16
"""From so many tokens on, laying out the weights for the processor takes less time than it saves: six, measured."""


@dataclass(frozen=True)
class Job:
    """All there is to do in one call."""

    rows: list[Row]
    run: RunConfig
    size: int
    """How many token ids may be written."""
    beams: BeamConfig | None = None
    source: Source | None = None
    """What an encoder is to read."""
    start: Start | None = None
    """What all rows begin with, read already."""
    faster: Faster = field(default_factory=Faster)


@torch.inference_mode()
def decode(model: Transformer, job: Job) -> Iterator[None]:
    """Write until every row has ended; yields after each token, with the rows up to date."""
    was_training = model.training
    model.eval()
    pays = max(row.config.limits.max_new_tokens for row in job.rows) >= PACKS_FROM
    try:
        yield from packed(_decode(model, job)) if pays else _decode(model, job)
    finally:
        model.train(was_training)


def _decode(model: Transformer, job: Job) -> Iterator[None]:
    reader = _Reader(model, job)
    pending, state = _to_read(model, job)
    scores = _prefill(reader, pending, state, job)
    if job.faster.ahead:
        yield from _ahead(model, job, reader, state, scores)
        return
    writer: Writer
    if job.beams is not None:
        writer = Beams(model, job.rows, job.run, job.size, job.beams)
    else:
        writer = Drawing(model, job.rows, job.run, job.size)
    step: Step = writer.begin(state)
    rows = job.rows
    while step.rows is None or step.rows:
        if step.rows is not None:
            state.select(step.rows, same_source=step.same_source)
            rows = rows if job.beams is not None else [rows[i] for i in step.rows]
        if step.tokens_B is not None:
            scores = reader.read(step.tokens_B[:, None], rows, state=state)
        elif step.rows is not None:
            scores = scores.rows(step.rows)
        step = writer.write(scores, state)
        yield


def _ahead(model: Transformer, job: Job, reader: _Reader, state: State, scores: Scores) -> Iterator[None]:
    """The one text of a job, read ahead of."""
    (row,) = job.rows
    drafter: Drafter = Lookup()
    if job.faster.draft is not None:
        drafter = Smaller(job.faster.draft, job.size, job.run.backend)

    def ask(tokens: list[int], last: int) -> Scores:
        return reader.read(torch.tensor([tokens], device=model.device), [row] * last, state=state, last=last)

    drawing = Drawing(model, job.rows, replace(job.run, keep=False), job.size)
    with evaluating(job.faster.draft):
        yield from write_ahead(
            row, drawing, scores, Reading(state, ask, job.run.keep), drafter, Pace(job.faster.n_ahead)
        )


class _Reader:
    """The model, asked for what its next tokens are chosen from."""

    def __init__(self, model: Transformer, job: Job) -> None:
        self.device = model.device
        self._model = model
        self._how: dict[str, Any] = {"taps": job.run.taps, "backend": job.run.backend}
        self._shortlist: Shortlist | None = None
        if job.faster.shortlist and job.beams is None and Shortlist.serves(model, job.rows, job.run):
            self._shortlist = Shortlist(model, job.size)

    def pass_over(self, tokens_BT: Tensor, **how: Any) -> None:
        """Read tokens behind which nothing is to be chosen."""
        self._model(tokens_BT, **self._how, **how)

    def read(self, tokens_BT: Tensor, rows: list[Row], *, state: State, last: int | None = 1, **more: Any) -> Scores:
        """The scores behind the last token of each text, or behind so many last ones of a single text. `rows`: the
        texts they belong to.
        """
        if self._shortlist is not None:
            x_BTD = self._model(tokens_BT, state=state, last=last, read=False, **self._how, **more)
            # Where a text is read again from its beginning, there is more than was asked for.
            return self._shortlist(x_BTD[:, -(last or 1) :].flatten(0, 1), rows)
        logits_BTV = self._model(tokens_BT, state=state, last=last, **self._how, **more)
        return Scores(logits_BTV[0] if last is not None and last > 1 else logits_BTV[:, -1])


@contextmanager
def evaluating(model: Transformer | None) -> Iterator[None]:
    """While this is open the model, if there is one, drops nothing out."""
    was_training = model is not None and model.training
    if was_training and model is not None:
        model.eval()
    try:
        yield
    finally:
        if was_training and model is not None:
            model.train()


def _to_read(model: Transformer, job: Job) -> tuple[list[list[int]], State]:
    """What of each row the state has not read, and the state."""
    rows, before = job.rows, job.run.state
    if before is not None:
        before.check()
        return [row.tokens[before.n_read :] for row in rows], before.state
    ahead = min(max(row.config.limits.max_new_tokens for row in rows), _ROOM_AHEAD)
    longest = max(len(row.tokens) for row in rows)
    if job.start is not None:
        prefix, n = job.start.prefix, job.start.n
        return [row.tokens[n:] for row in rows], prefix.state(model, n, len(rows), longest + ahead - n)
    return [row.tokens for row in rows], model.new_state(longest + ahead)


def _prefill(reader: _Reader, pending: list[list[int]], state: State, job: Job) -> Scores:
    """Read the prompts, padded on the left, in chunks; the scores of the token that follows each.

    An encoder reads the source with the first chunk; the state keeps what is made of it.
    """
    device = reader.device
    width = max(len(ids) for ids in pending)
    tokens_BT = torch.tensor([[0] * (width - len(ids)) + ids for ids in pending], device=device)
    more: dict[str, Any] = {} if job.source is None else job.source.inputs(device)
    present_BT: Tensor | None = None
    if any(len(ids) < width for ids in pending):
        first_B1 = torch.tensor([[width - len(ids)] for ids in pending], device=device)
        present_BT = torch.arange(width, device=device) >= first_B1
    for start in range(0, width, job.run.prefill_chunk):
        chunk = slice(start, min(start + job.run.prefill_chunk, width))
        more["present"] = None if present_BT is None else present_BT[:, chunk]
        if chunk.stop == width:
            break
        reader.pass_over(tokens_BT[:, chunk], state=state, last=_last(job, 0), **more)
        more = {}
    return reader.read(tokens_BT[:, chunk], job.rows, state=state, last=_last(job, 1), **more)


def _last(job: Job, n: int) -> int | None:
    """How many slots' scores are worked out: what is needed, and all where somebody looks at them."""
    return n if job.run.taps is None or job.run.taps.mode("", "logits") == "none" else None
