"""`clearhead generate SOURCE PROMPT`: the continuation, as it is written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import tyro
from tyro.conf import Positional

from clearhead.cli.options import Beams, Ending, Loading, OptionalText, Sampling, Source, given


@dataclass(frozen=True, kw_only=True)
class Options:
    source: Source
    """A folder, a .gguf file, a name on the Hub, or a shipped model."""
    prompt: Annotated[Positional[str], tyro.conf.arg(metavar="PROMPT")] = "-"
    """The text to continue, or what an encoder reads: a text, or the file of a sound. "-", or nothing, reads it from
    standard input (one newline at its end is dropped)."""
    decoder_prompt: OptionalText = None
    """With an encoder, what the decoder's text begins with; special tokens may be written out."""
    sampling: Sampling
    beams: Beams
    ending: Ending
    loading: Loading
    json: bool = False
    """Print one JSON object when the text is complete."""


def run(options: Options) -> None:
    from clearhead.cli import console

    prompt = console.prompt_or_stdin(options.prompt)
    how = given(options.sampling, options.beams, options.ending)
    model = console.load(options.source, options.loading, how)
    if options.decoder_prompt is not None:
        how["decoder_prompt"] = options.decoder_prompt

    import clearhead
    from clearhead.generation import BeamResult

    if options.json:
        result = clearhead.generate(model, prompt, logprobs=True, **how)
        console.print_json(
            {
                "prompt": prompt,
                "prompt_tokens": result.prompt_tokens,
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
