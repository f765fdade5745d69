"""`clearhead look SOURCE TEXT`: where a model looks, as a map, small maps of all heads, links; or what layers say."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from tyro.conf import Positional

from clearhead.cli.options import Loading, OptionalInt, OptionalText, Source
from clearhead.errors import UsageError

if TYPE_CHECKING:
    from clearhead.lens.views.drawn import Drawn
    from clearhead.model.transformer import Transformer

View = Literal["map", "grid", "links", "lens"]


@dataclass(frozen=True, kw_only=True)
class Which:
    """What is shown."""

    view: Annotated[View, tyro.conf.arg(metavar="map|grid|links|lens")] = "map"
    """map: one pattern, its strongest links, and what comes next. grid: every head as a small map. links: lines between
    tokens, of all layers in a page (.html). lens: the likeliest next token after every layer."""
    layer: OptionalInt = None
    """Which layer, from 0; when not given, the map is of the head that looks hardest at one token."""
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
    """Write it to this file too: .svg, .png, .html or .json, by its ending."""
    loading: Loading
    json: bool = False
    """Print all numbers as JSON: tokens, patterns, links and probabilities."""


def run(options: Options) -> None:
    from clearhead.cli import console

    _check(options)
    text = console.prompt_or_stdin(options.text)
    with console.busy("starting"):
        console.import_torch()
        from clearhead.lens import check_extension
    if options.save is not None:
        check_extension(options.save)
    drawn = _look(console.load(options.source, options.loading), text, options)
    if options.json:
        console.print_json(drawn.to_json())
    else:
        drawn.show()
    if options.save is not None:
        print(f"wrote {drawn.save(options.save)}", file=sys.stderr)


def _check(options: Options) -> None:
    which = options.which
    if which.head is not None and which.layer is None:
        raise UsageError("--head is one of a layer's heads: give --layer too")
    if options.top < 1:
        raise UsageError(f"--top is {options.top}; list at least one token")
    if which.contacts and (which.layer is not None or which.view != "map"):
        raise UsageError("--contacts is of all layers together: leave out --layer, --head and --view")
    if which.view == "lens" and which.layer is not None:
        raise UsageError("--view lens shows every layer: leave out --layer")
    if which.view == "grid" and which.head is not None:
        raise UsageError("--view grid shows every head: leave out --head")


def _look(model: Transformer, text: str, options: Options) -> Drawn:
    """What was asked for."""
    from clearhead.lens import attention_report, look
    from clearhead.lens.contacts import contact_map
    from clearhead.lens.logit_lens import logit_lens

    which = options.which
    if which.contacts:
        return contact_map(model, text)
    if which.view == "map":
        return attention_report(model, text, layer=which.layer, head=which.head, top=options.top)
    if which.view == "lens":
        return logit_lens(model, text)
    address = None if which.layer is None else f"layers.{which.layer}.mixer.pattern"
    if which.view == "grid":
        return look(model, text, *([] if address is None else [address])).grid()
    return look(model, text).links(address, [] if which.head is None else [which.head])
