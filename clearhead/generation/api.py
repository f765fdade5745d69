"""`generate` and `stream`: from a prompt and flat options to rows under way."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from torch import Tensor

from clearhead.errors import ClearheadError, UsageError
from clearhead.generation.decode import decode
from clearhead.generation.options import Options, RunConfig, check_names, read_rows, read_run
from clearhead.generation.prompts import Prompt, fit, read_prompt, window
from clearhead.generation.result import Result, Stream
from clearhead.generation.rows import Row

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer


@overload
def generate(model: Transformer, prompt: str | Sequence[int], **options: Unpack[Options]) -> Result: ...  # type: ignore[overload-overlap]
@overload  # (a str is a sequence of str; the first that fits is taken)
def generate(
    model: Transformer, prompt: Sequence[str] | Sequence[Sequence[int]], **options: Unpack[Options]
) -> list[Result]: ...
@overload
def generate(model: Transformer, prompt: Tensor, **options: Unpack[Options]) -> Result | list[Result]: ...
def generate(model: Transformer, prompt: Prompt, **options: Unpack[Options]) -> Result | list[Result]:
    """Write on from a prompt.

    Args:
        model: what `clearhead.load` gave.
        prompt: a text, or token ids: one answer. A list of texts, a list of lists of ids, or a tensor
            (rows, length): a list of answers, in order, each what its prompt gets alone.
        options: see `Options`.

    Raises:
        UsageError: an option there is not, or a value out of range.
        ClearheadError: an empty prompt without a token to begin with, a prompt longer than the window, a model that
            can't write (no decoder, no head over tokens), scores that are no numbers.
    """
    job = _prepare(model, prompt, options)
    for _ in decode(model, job.rows, job.run, job.size):
        pass
    results = [row.result() for row in job.rows]
    return results if job.many else results[0]


def stream(model: Transformer, prompt: str | Sequence[int] | Tensor, **options: Unpack[Options]) -> Stream:
    """Write on from one prompt, piece by piece: whole code points only, and nothing that may begin a stop text.

    Takes what `generate` takes, raises at once what it raises, and the pieces joined are its text. After the last
    piece `.result` holds the whole answer. Leave the loop to stop early.
    """
    job = _prepare(model, prompt, options)
    if len(job.rows) != 1:
        raise UsageError(f"stream takes one prompt, not {len(job.rows)}; generate takes several")
    steps = decode(model, job.rows, job.run, job.size)
    return Stream(job.rows[0], steps, has_text=model.tokenizer is not None)


def end_tokens(model: Transformer) -> tuple[int, ...]:
    """The ids that end a text by the model's own account: its config's, its tokenizer's, its generation_config's."""
    ids = set(model.config.ids.eos)
    if model.tokenizer is not None:
        ids |= set(model.tokenizer.eos_ids)
    eos = _generation_config(model).get("eos_token_id")
    ids |= set(eos if isinstance(eos, list) else [] if eos is None else [eos])
    return tuple(sorted(ids))


def _generation_config(model: Transformer) -> dict[str, Any]:
    """What the checkpoint advises for generation, from the file it carried along."""
    file = model.origin.sidecar_files.get("generation_config.json") if model.origin is not None else None
    if isinstance(file, Path):
        file = file.read_bytes() if file.exists() else None
    advised: dict[str, Any] = json.loads(file) if file else {}
    return advised


@dataclass(frozen=True)
class _Job:
    rows: list[Row]
    run: RunConfig
    size: int
    many: bool


def _prepare(model: Transformer, prompt: Prompt, options: Options) -> _Job:
    """Check everything that can be checked before the model runs."""
    check_names(options)
    if model.config.decoder is None or model.config.heads.tokens is None:
        raise ClearheadError("this model can't write: that takes a decoder with a head over tokens")
    run = read_run(options)
    tokenizer, before = model.tokenizer, run.state
    prompts, many = read_prompt(model, prompt, run.present, continued=before is not None)
    configs = read_rows(options, len(prompts))
    n_before = 0
    if before is not None:
        if len(prompts) != 1:
            raise UsageError(f"a kept text is continued by one prompt, not by {len(prompts)}; call once for each")
        before.check()
        if not prompts[0] and before.n_read == len(before.tokens):
            # All was read and nothing is added: read the last token once more, for the scores behind it.
            prompts[0] = before.back_to(before.tokens) or []
        n_before = len(before.tokens)
    bos = tokenizer.bos_id if tokenizer is not None else model.config.ids.bos
    context = window(model.config)
    own_ends = end_tokens(model)
    seen: Counter[tuple[tuple[int, ...], int | None]] = Counter()
    rows = []
    for config, ids in zip(configs, prompts, strict=True):
        limits = config.limits
        if tokenizer is None and (limits.stop or limits.max_text is not None):
            raise ClearheadError("this model has no tokenizer, so no text to stop at: use stop_tokens, max_new_tokens")
        ids = fit(ids, limits, context=context, n_before=n_before, bos=bos)
        same = (tuple(ids), config.sampling.seed)
        row = Row(
            config,
            ids,
            before=before,
            ends=own_ends if limits.stop_tokens is None else limits.stop_tokens,
            room=context,
            decoder=tokenizer.stream() if tokenizer is not None else None,
            stream=seen[same] if before is None else before.stream,
        )
        seen[same] += 1
        rows.append(row)
    size = model.config.decoder.embed.front.vocab_size
    if tokenizer is not None:
        size = min(size, tokenizer.vocab_size)
    return _Job(rows, run, size, many)
