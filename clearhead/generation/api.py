"""`generate` and `stream`: from a prompt and flat options to rows under way."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack, overload

from torch import Tensor

from clearhead.errors import ClearheadError, UsageError
from clearhead.generation.decode import Job, decode
from clearhead.generation.drafts import check_ahead
from clearhead.generation.kept import Kept
from clearhead.generation.options import Options, RunConfig, check_names, read_beams, read_faster, read_rows, read_run
from clearhead.generation.prefix import check_options, starts
from clearhead.generation.prompts import Prompt, fit, read_prompt, window
from clearhead.generation.result import Result, Stream
from clearhead.generation.rows import Row
from clearhead.generation.rules import Rules, read_rules
from clearhead.generation.source import Source, beginning, read_source

if TYPE_CHECKING:
    from clearhead.inputs.stream import StreamDecoder
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
            (rows, length): a list of answers, in order, each what its prompt gets alone. A model with an encoder reads
            it as the source, and writes its own text. For one that listens it is a sound: a file, samples, or a
            spectrogram (bands, frames).
        options: see `Options`.

    Raises:
        UsageError: an option there is not, or a value out of range.
        ClearheadError: an empty prompt without a token to begin with, a prompt longer than the window, a model that
            can't write (no decoder, no head over tokens), scores that are no numbers.
    """
    job, many = _prepare(model, prompt, options)
    for part in _parts(job, options):
        for _ in decode(model, part):
            pass
    results = [row.result() for row in job.rows]
    return results if many else results[0]


def stream(model: Transformer, prompt: str | Sequence[int] | Tensor, **options: Unpack[Options]) -> Stream:
    """Write on from one prompt, piece by piece: whole code points only, and nothing that may begin a stop text.

    Takes what `generate` takes, raises at once what it raises, and the pieces joined are its text. After the last
    piece `.result` holds the whole answer. Leave the loop to stop early.
    """
    job, _ = _prepare(model, prompt, options)
    if len(job.rows) != 1:
        raise UsageError(f"stream takes one prompt, not {len(job.rows)}; generate takes several")
    if job.beams is not None:
        raise UsageError("a beam search knows its text only at the end; use generate, or leave n_beams")
    (job,) = _parts(job, options)
    return Stream(job.rows[0], decode(model, job), has_text=model.tokenizer is not None)


def end_tokens(model: Transformer) -> tuple[int, ...]:
    """The ids that end a text by the model's own account: its config's, its tokenizer's, its generation_config's."""
    ids = set(model.config.ids.eos)
    if model.tokenizer is not None:
        ids |= set(model.tokenizer.eos_ids)
    eos = _generation_config(model).get("eos_token_id")
    ids |= set(eos if isinstance(eos, list) else [] if eos is None else [eos])
    return tuple(sorted(ids))


def _generation_config(model: Transformer) -> dict[str, Any]:
    """What the checkpoint advises for generation: a file it carried along, or in older ones the config itself."""
    if model.origin is None:
        return {}
    file = model.origin.sidecar_files.get("generation_config.json")
    if isinstance(file, Path):
        file = file.read_bytes() if file.exists() else None
    advised: dict[str, Any] = json.loads(file) if file else dict(model.origin.raw_config)
    return advised


def _prepare(model: Transformer, prompt: Prompt, options: Options) -> tuple[Job, bool]:
    """Check everything that can be checked before the model runs; and whether there were several prompts."""
    check_names(options)
    if model.config.decoder is None or model.config.heads.tokens is None:
        raise ClearheadError("this model can't write: that takes a decoder with a head over tokens")
    run, beams, tokenizer = read_run(options), read_beams(options), model.tokenizer
    prefix = options.get("prefix")
    if prefix is not None:
        check_options(prefix, state=run.state, has_encoder=model.config.encoder is not None)
        prefix.check(model)
    advised = _generation_config(model)
    given, source, many = _read(model, prompt, advised, run, options)
    own_ends = end_tokens(model)
    rules = read_rules(advised, own_ends) if options.get("follow_config", True) else Rules()
    configs = read_rows(options, len(given), rules)
    before = run.state
    context = window(model.config)
    bos = tokenizer.bos_id if tokenizer is not None else model.config.ids.bos
    seen: Counter[tuple[Hashable, int | None]] = Counter()
    rows = []
    for i, (config, ids) in enumerate(zip(configs, given, strict=True)):
        limits = config.limits
        if tokenizer is None and (limits.stop or limits.max_text is not None):
            raise ClearheadError("this model has no tokenizer, so no text to stop at: use stop_tokens, max_new_tokens")
        ids = fit(ids, limits, context=context, n_before=len(before.tokens) if before is not None else 0, bos=bos)
        same = (tuple(ids) if source is None else source.key(i), config.sampling.seed)
        row = Row(
            config,
            ids,
            given=None if source is None else source.ids[i],
            before=before,
            ends=own_ends if limits.stop_tokens is None else limits.stop_tokens,
            room=context,
            decoder=_decoder(model, before),
            stream=seen[same] if before is None else before.stream,
        )
        seen[same] += 1
        rows.append(row)
    size = model.config.vocab_size
    if tokenizer is not None:
        size = min(size, tokenizer.vocab_size)
    faster = read_faster(options)
    if faster.ahead:
        check_ahead(model, faster, len(rows), size)
    return Job(rows, run, size, beams, source, faster=faster), many


def _parts(job: Job, options: Options) -> list[Job]:
    """The batches that the rows are written in: one, or with a prefix those that begin with it by themselves."""
    prefix = options.get("prefix")
    # Who looks inside is to see the whole text read.
    if prefix is None or job.run.taps is not None:
        return [job]
    parts = []
    for places, start in starts(prefix, [row.tokens for row in job.rows]):
        rows = [job.rows[i] for i in places]
        for row in rows:
            row.n_cached = 0 if start is None else start.n
        parts.append(replace(job, rows=rows, start=start))
    return parts


def _read(
    model: Transformer, prompt: Prompt, advised: Mapping[str, Any], run: RunConfig, options: Options
) -> tuple[list[list[int]], Source | None, bool]:
    """The tokens a decoder is given for each row, what an encoder is given, and whether there were several rows."""
    before = run.state
    if before is None and model.config.encoder is not None:
        source, many = read_source(model, prompt, run.present, options.get("overflow", "refuse"))
        begin = beginning(model, advised, options.get("decoder_prompt"))
        return [list(begin) for _ in source.ids], source, many
    if options.get("decoder_prompt") is not None:
        raise UsageError("decoder_prompt is for a model with an encoder, and its first text; here the prompt is all")
    prompts, many = read_prompt(model, prompt, run.present, continued=before is not None)
    if before is not None:
        if len(prompts) != 1:
            raise UsageError(f"a kept text is continued by one prompt, not by {len(prompts)}; call once for each")
        before.check()
        if not prompts[0] and before.n_read == len(before.tokens):
            # All was read and nothing is added: read the last token once more, for the scores behind it.
            prompts[0] = before.back_to(before.tokens) or []
    return prompts, None, many


def _decoder(model: Transformer, before: Kept | None) -> StreamDecoder | None:
    """What turns new tokens into text. Behind an encoder, marks are no part of it."""
    if model.tokenizer is None:
        return None
    if model.config.encoder is None:
        decoder: StreamDecoder = model.tokenizer.stream()
        return decoder
    decoder = model.tokenizer.stream(skip_special=True)
    for token in before.tokens if before is not None else ():
        decoder.push(token)
    return decoder
