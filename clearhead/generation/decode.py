"""The loop: read the prompts, then a token for every row, until each row has ended."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.generation.chooser import Chooser
from clearhead.generation.kept import Kept, copy_state
from clearhead.generation.options import RunConfig
from clearhead.generation.rows import Row
from clearhead.ops import sampling
from clearhead.state import State

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

_ROOM_AHEAD = 1024
"""Tokens a new state makes room for at most beyond the prompt; it grows when more are drawn."""


@torch.inference_mode()
def decode(model: Transformer, rows: list[Row], run: RunConfig, size: int) -> Iterator[None]:
    """Draw until every row has ended; yields after each token, with the rows up to date.

    Rows that end leave the batch. `size` is how many token ids may be drawn.
    """
    was_training = model.training
    model.eval()
    try:
        yield from _decode(model, rows, run, size)
    finally:
        model.train(was_training)


def _decode(model: Transformer, rows: list[Row], run: RunConfig, size: int) -> Iterator[None]:
    pending, state = _to_read(model, rows, run)
    logits_BV = _prefill(model, pending, state, run)
    wants_logprobs = run.logprobs or run.top_logprobs > 0
    if wants_logprobs:
        for row in rows:
            row.logprobs = []
            row.top_logprobs = [] if run.top_logprobs else None
    live = rows
    tokens_B: Tensor | None = None
    chooser: Chooser | None = None
    while True:
        going = [i for i, row in enumerate(live) if row.finish_reason is None]
        if len(going) < len(live):
            if run.keep:
                _keep(live, state)
            live, chooser = [live[i] for i in going], None
            if not live:
                return
            state.select(going)
            logits_BV = logits_BV[going]
            tokens_B = None if tokens_B is None else tokens_B[going]
        if tokens_B is not None:
            logits_BV = model(tokens_B[:, None], state=state, last=1, backend=run.backend)[:, -1]
        if chooser is None:
            chooser = Chooser(live, size, logits_BV.device)
        tokens_B = chooser.choose(logits_BV)
        tokens = tokens_B.tolist()
        if min(tokens) < 0:
            raise _no_choice(model, live[0])
        if wants_logprobs:
            _report(live, logits_BV, tokens_B, run.top_logprobs)
        for row, token in zip(live, tokens, strict=True):
            row.take(token)
        yield


def _to_read(model: Transformer, rows: list[Row], run: RunConfig) -> tuple[list[list[int]], State]:
    """What of each row the state has not read, and the state."""
    if run.state is not None:
        run.state.check()
        return [row.tokens[run.state.n_read :] for row in rows], run.state.state
    ahead = min(max(row.config.limits.max_new_tokens for row in rows), _ROOM_AHEAD)
    longest = max(len(row.tokens) for row in rows)
    return [row.tokens for row in rows], model.new_state(longest + ahead)


def _prefill(model: Transformer, pending: list[list[int]], state: State, run: RunConfig) -> Tensor:
    """Read the prompts, padded on the left, in chunks; the scores of the token that follows each, (B, V)."""
    width = max(len(ids) for ids in pending)
    tokens_BT = torch.tensor([[0] * (width - len(ids)) + ids for ids in pending], device=model.device)
    present_BT: Tensor | None = None
    if any(len(ids) < width for ids in pending):
        first_B1 = torch.tensor([[width - len(ids)] for ids in pending], device=model.device)
        present_BT = torch.arange(width, device=model.device) >= first_B1
    logits_BTV: Tensor | None = None
    for start in range(0, width, run.prefill_chunk):
        chunk = slice(start, min(start + run.prefill_chunk, width))
        logits_BTV = model(
            tokens_BT[:, chunk],
            present=None if present_BT is None else present_BT[:, chunk],
            state=state,
            last=1 if chunk.stop == width else 0,
            backend=run.backend,
        )
    assert logits_BTV is not None
    return logits_BTV[:, -1]


def _report(rows: list[Row], logits_BV: Tensor, tokens_B: Tensor, n_top: int) -> None:
    """Note the log-probabilities of the tokens chosen, and of the likeliest ones."""
    for row, value in zip(rows, sampling.log_probs(logits_BV, tokens_B).tolist(), strict=True):
        assert row.logprobs is not None
        row.logprobs.append(value)
    if n_top:
        best = logits_BV.float().log_softmax(-1).topk(min(n_top, logits_BV.shape[-1]), dim=-1)
        for row, ids, values in zip(rows, best.indices.tolist(), best.values.tolist(), strict=True):
            assert row.top_logprobs is not None
            row.top_logprobs.append(dict(zip(ids, values, strict=True)))


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


def _no_choice(model: Transformer, row: Row) -> ClearheadError:
    if row.config.penalties.bias is not None:
        return ClearheadError("no token is left to choose: logit_bias forbids all of them, or the scores are NaN")
    where = f" loaded from {model.origin.where}" if getattr(model.origin, "where", None) else ""
    return ClearheadError(
        f"the model{where} gave NaN where scores of the next token should be: its weights are damaged, or too large "
        f"for {str(model.dtype).removeprefix('torch.')}; load it anew, or with dtype=torch.float32"
    )
