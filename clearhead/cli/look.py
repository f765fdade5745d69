"""`clearhead look SOURCE TEXT`: an attention pattern as a map, its strongest links, and the likeliest next tokens."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

import tyro
from tyro.conf import Positional

from clearhead.cli.options import Loading, OptionalInt, OptionalText, Source
from clearhead.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Which:
    """What is shown."""

    layer: OptionalInt = None
    """Which layer, from 0; when not given, the head is shown that looks hardest at one token."""
    head: OptionalInt = None
    """Which of its heads, from 0; the mean of all when not given."""
    contacts: bool = False
    """Show which residues touch instead, with a model of proteins that has a contact head."""


@dataclass(frozen=True, kw_only=True)
class Options:
    source: Source
    """A folder, a .gguf file, a name on the Hub, or a shipped model."""
    text: Annotated[Positional[str], tyro.conf.arg(metavar="TEXT")] = "-"
    """The text to look at; "-", or nothing, reads it from standard input (one newline at its end is dropped)."""
    which: Which
    top: int = 8
    """How many of the likeliest next tokens to list."""
    save: OptionalText = None
    """Write the map to this file too: .svg, .png, .html or .json, by its ending."""
    loading: Loading
    json: bool = False
    """Print tokens, pattern, links and probabilities as JSON."""


def run(options: Options) -> None:
    from clearhead.cli import console

    if options.which.head is not None and options.which.layer is None:
        raise UsageError("--head is one of a layer's heads: give --layer too")
    if options.top < 1:
        raise UsageError(f"--top is {options.top}; list at least one token")
    if options.which.contacts and (options.which.layer is not None or options.save is not None):
        raise UsageError("--contacts is of all layers together, and only drawn: leave out --layer, --head and --save")
    text = console.prompt_or_stdin(options.text)
    with console.busy("starting"):
        console.import_torch()
        from clearhead.lens import attention_report, check_extension
        from clearhead.lens.contacts import contact_map
    if options.save is not None:
        check_extension(options.save)
    model = console.load(options.source, options.loading)
    if options.which.contacts:
        found = contact_map(model, text)
        if options.json:
            console.print_json(found.to_json())
        else:
            found.print()
        return
    report = attention_report(model, text, layer=options.which.layer, head=options.which.head, top=options.top)
    if options.json:
        console.print_json(report.to_json())
    else:
        report.print()
    if options.save is not None:
        print(f"wrote {report.save(options.save)}", file=sys.stderr)
