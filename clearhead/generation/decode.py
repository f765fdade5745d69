"""The loop: read the prompts, then a token for every row, until each row has ended."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.generation.beam import Beams
from clearhead.generation.drawing import Drawing, Step, Writer
from clearhead.generation.options import BeamConfig, RunConfig
from clearhead.generation.rows import Row
from clearhead.generation.source import Source
from clearhead.nn.packing import packing
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


@torch.inference_mode()
def decode(model: Transformer, job: Job) -> Iterator[None]:
    """Write until every row has ended; yields after each token, with the rows up to date."""
    was_training = model.training
    model.eval()
    pays = max(row.config.limits.max_new_tokens for row in job.rows) >= PACKS_FROM
    try:
        with packing() if pays else nullcontext():
            yield from _decode(model, job)
    finally:
        model.train(was_training)


def _decode(model: Transformer, job: Job) -> Iterator[None]:
    pending, state = _to_read(model, job)
    logits_BV = _prefill(model, pending, state, job)
    writer: Writer
    if job.beams is not None:
        writer = Beams(model, job.rows, job.run, job.size, job.beams)
    else:
        writer = Drawing(model, job.rows, job.run, job.size)
    step: Step = writer.begin(state)
    while step.rows is None or step.rows:
        if step.rows is not None:
            state.select(step.rows, same_source=step.same_source)
        if step.tokens_B is not None:
            tokens_B1 = step.tokens_B[:, None]
            logits_BV = model(tokens_B1, state=state, last=1, taps=job.run.taps, backend=job.run.backend)[:, -1]
        elif step.rows is not None:
            logits_BV = logits_BV[step.rows]
        step = writer.write(logits_BV, state)
        yield


def _to_read(model: Transformer, job: Job) -> tuple[list[list[int]], State]:
    """What of each row the state has not read, and the state."""
    rows, before = job.rows, job.run.state
    if before is not None:
        before.check()
        return [row.tokens[before.n_read :] for row in rows], before.state
    ahead = min(max(row.config.limits.max_new_tokens for row in rows), _ROOM_AHEAD)
    longest = max(len(row.tokens) for row in rows)
    return [row.tokens for row in rows], model.new_state(longest + ahead)


def _prefill(model: Transformer, pending: list[list[int]], state: State, job: Job) -> Tensor:
    """Read the prompts, padded on the left, in chunks; the scores of the token that follows each, (B, V).

    An encoder reads the source with the first chunk; the state keeps what is made of it.
    """
    width = max(len(ids) for ids in pending)
    tokens_BT = torch.tensor([[0] * (width - len(ids)) + ids for ids in pending], device=model.device)
    present_BT: Tensor | None = None
    if any(len(ids) < width for ids in pending):
        first_B1 = torch.tensor([[width - len(ids)] for ids in pending], device=model.device)
        present_BT = torch.arange(width, device=model.device) >= first_B1
    logits_BTV: Tensor | None = None
    source = {} if job.source is None else job.source.inputs(model.device)
    for start in range(0, width, job.run.prefill_chunk):
        chunk = slice(start, min(start + job.run.prefill_chunk, width))
        logits_BTV = model(
            tokens_BT[:, chunk],
            present=None if present_BT is None else present_BT[:, chunk],
            state=state,
            last=_last(job, 1 if chunk.stop == width else 0),
            taps=job.run.taps,
            backend=job.run.backend,
            **source,
        )
        source = {}
    assert logits_BTV is not None
    return logits_BTV[:, -1]


def _last(job: Job, n: int) -> int | None:
    """How many slots' scores are worked out: what is needed, and all where somebody looks at them."""
    return n if job.run.taps is None or job.run.taps.mode("", "logits") == "none" else None
