"""`clearhead heads SOURCE`: what each head of a model does, and how sure that is."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Union

import tyro

from clearhead.cli.options import Loading, Source
from clearhead.errors import UsageError
from clearhead.progress import progress_bar

OptionalFile = Annotated[Union[str, None], tyro.conf.arg(metavar="FILE", help_behavior_hint="")]  # noqa: UP007


@dataclass(frozen=True, kw_only=True)
class Options:
    source: Source
    """A folder, a .gguf file, a name on the Hub, or a shipped model such as clear-2l."""
    text: OptionalFile = None
    """Measure on this text what any text shows (its first 512 tokens); "-" is standard input. A text of ours when not
    given."""
    composition: bool = False
    """Say of each head which earlier heads it reads, by its queries, keys or values."""
    shuffles: int = 8
    """How many times the tokens are shuffled for the control."""
    save: OptionalFile = None
    """Write the picture of layers by heads to this file too: .svg, .png, .html, or all numbers as .json."""
    loading: Loading
    json: bool = False
    """Print every measure of every head as JSON."""


def run(options: Options) -> None:
    from clearhead.cli import console

    if options.shuffles < 2:
        raise UsageError(f"--shuffles is {options.shuffles}; a control has a spread from 2 on")
    text = None if options.text is None else "\n".join(console.read_lines(options.text))
    with console.busy("starting"):
        console.import_torch()
        from clearhead.lens.heads import heads
        from clearhead.lens.views.save import check_extension
    if options.save is not None:
        check_extension(options.save)
    model = console.load(options.source, options.loading)
    with progress_bar(f"asking the heads of {options.source}", 1.0) as more:
        done = 0.0

        def told(share: float) -> None:
            nonlocal done
            more(share - done)
            done = share

        found = heads(model, text, shuffles=options.shuffles, composition=options.composition, progress=told)
    if options.json:
        console.print_json(found.to_json())
    else:
        found.show()
    if options.save is not None:
        print(f"wrote {found.save(options.save)}", file=sys.stderr)
