"""`clearhead evaluate SOURCE [FILE...]`: how well a model predicts texts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from tyro.conf import Positional, arg

from clearhead.cli.options import Loading, OptionalInt, Source
from clearhead.errors import UsageError

if TYPE_CHECKING:
    Files = tuple[str, ...]
else:
    # Of a plain tuple, the words are texts (see cli.options).
    Files = Annotated[Positional[tuple], arg(metavar="FILE", help_behavior_hint="")]


@dataclass(frozen=True, kw_only=True)
class Options:
    source: Source
    """A folder, a .gguf file, a name on the Hub, or a shipped model."""
    files: Files = ()
    """Text files, each a text by itself. Without any, the texts that were held out when the model was trained, for a
    checkpoint of `clearhead train`."""
    window: OptionalInt = None
    """How many tokens are read at a time; the length the model was made for when not given."""
    stride: OptionalInt = None
    """How far windows move on: every token but a text's first has at least window - stride before it. Half of the
    window when not given."""
    loading: Loading
    json: bool = False
    """Print the numbers as JSON, with those of every file."""


def run(options: Options) -> None:
    from clearhead.cli import console

    model = console.load(options.source, options.loading)
    from clearhead.training.evaluate import evaluate, read_texts
    from clearhead.training.prepare_texts import held_out_of

    texts = dict(read_texts(options.files)) if options.files else held_out_of(options.source)
    if texts is None:
        raise UsageError(f"{options.source} is no checkpoint of a run here, so name files to evaluate on after it")
    with console.progress(f"{len(texts)} texts", sum(len(text.encode()) for text in texts.values())) as told:
        found = evaluate(model, texts, window=options.window, stride=options.stride, progress=told)
    if options.json:
        listed = [
            {"name": f.name, "n_bytes": f.n_bytes, "n_tokens": f.n_tokens, "bits_per_byte": f.bits_per_byte}
            for f in found.files
        ]
        console.print_json({**found.summary(), "files": listed})
        return
    print(f"perplexity     {found.perplexity:.4f}")
    print(f"bits per byte  {found.bits_per_byte:.4f}")
    print(f"accuracy       {found.accuracy:.4f}")
    print(
        f"of {found.n_tokens:,} tokens, {found.n_bytes:,} bytes in {len(found.files):,} texts, by windows of "
        f"{found.window:,} tokens that move on by {found.stride:,}"
    )
