"""`clearhead generate SOURCE PROMPT`: the continuation, as it is written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from tyro.conf import Positional

from clearhead.cli.options import Beams, Ending, Faster, Loading, OptionalText, Sampling, Source, given
from clearhead.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Before:
    """What stands before the new text."""

    prompt: Annotated[Positional[str], tyro.conf.arg(metavar="PROMPT")] = "-"
    """The text to continue, or what an encoder reads: a text, or the file of a sound. "-", or nothing, reads it from
    standard input (one newline at its end is dropped)."""
    decoder_prompt: OptionalText = None
    """With an encoder, what the decoder's text begins with; special tokens may be written out."""
    prefix: OptionalText = None
    """A file with the model's memory of a text that stands before the prompt, which is so read once and not each time;
    made when it is missing, of --prefix-text. The answer is the one to that text and the prompt in one."""
    prefix_text: OptionalText = None
    """What the file of --prefix is to hold. If it holds a beginning of this text, the rest is read and added."""


@dataclass(frozen=True, kw_only=True)
class Options:
    source: Source
    """A folder, a .gguf file, a name on the Hub, or a shipped model."""
    before: Before
    sampling: Sampling
    beams: Beams
    ending: Ending
    faster: Faster
    loading: Loading
    json: bool = False
    """Print one JSON object when the text is complete."""


def run(options: Options) -> None:
    from clearhead.cli import console

    before = options.before
    _check_prefix(before)
    prompt = console.prompt_or_stdin(before.prompt)
    how = given(options.sampling, options.beams, options.ending, options.faster)
    model = console.load(options.source, options.loading, how)
    if options.faster.draft is not None:
        how["draft"] = console.load(options.faster.draft, options.loading)
    if before.decoder_prompt is not None:
        how["decoder_prompt"] = before.decoder_prompt
    if before.prefix is not None:
        from clearhead.generation.prefix_file import prefix_at

        with console.busy("reading the prefix"):
            prefix = prefix_at(before.prefix, model, before.prefix_text)
        prompt, how["prefix"] = f"{prefix.text}{prompt}", prefix

    import clearhead
    from clearhead.generation import BeamResult

    if options.json:
        result = clearhead.generate(model, prompt, logprobs=True, **how)
        console.print_json(
            {
                "prompt": prompt,
                "prompt_tokens": result.prompt_tokens,
                **({"cached_tokens": result.cached_tokens} if before.prefix is not None else {}),
                "text": result.text,
                "tokens": result.tokens,
                "finish_reason": result.finish_reason,
                "logprobs": result.logprobs,
                **({"score": result.score} if isinstance(result, BeamResult) else {}),
            }
        )
        return
    if how.get("n_beams", 1) > 1:
        print(clearhead.generate(model, prompt, **how).text)
        return
    for piece in clearhead.stream(model, prompt, **how):
        print(piece, end="", flush=True)
    print()


def _check_prefix(before: Before) -> None:
    """What is wrong with the two flags whatever the model."""
    if before.prefix is None:
        if before.prefix_text is not None:
            raise UsageError("--prefix-text is what the file of --prefix is made of; give --prefix FILE with it")
    elif before.prefix_text is None and not Path(before.prefix).expanduser().exists():
        raise UsageError(f"there is no {before.prefix}; say what text it is to hold (--prefix-text TEXT)")
