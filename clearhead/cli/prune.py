"""`clearhead prune SOURCE FOLDER --heads 25%`: the model without the attention heads that matter least."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import tyro
from tyro.conf import Positional

from clearhead.cli.options import Loading, OptionalInt, OptionalText, Source
from clearhead.errors import ClearheadError, UsageError
from clearhead.progress import progress_bar

if TYPE_CHECKING:
    from clearhead.lens.pruning.prune import Pruning, PruningCurve


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """How it is told which heads matter."""

    by: Literal["gradient", "ablation", "random"] = "gradient"
    """By the gradient of a mask on each head, by the loss without it, or by chance, to compare with."""
    text: OptionalText = None
    """A file of text to rank heads on; the reference of the Python language, which comes with Python, when not
    given."""
    held_out: OptionalText = None
    """A file of text to measure the loss on; when not given, the second half of the other, whose first half then
    ranks."""
    tokens: OptionalInt = None
    """How many tokens of each are read at most; 8192 when not given."""
    seed: int = 0
    """Of the order by chance, and of the tokens that are hidden from a model that sees both sides."""


@dataclass(frozen=True, kw_only=True)
class Options:
    source: Source
    """A folder, a .gguf file, a name on the Hub, or a shipped model."""
    folder: Annotated[Positional[str], tyro.conf.arg(metavar="FOLDER", help_behavior_hint="")] = ""
    """Where to write the smaller model; it must be new, or empty. Not needed with --curve."""
    heads: OptionalText = None
    """How many heads go: a share of all, as in 25%, or a number."""
    ranking: Ranking
    curve: bool = False
    """Show the loss with 0 to 75% of the heads cut off, in every order."""
    loading: Loading
    json: bool = False
    """Print the same as JSON."""


def run(options: Options) -> None:
    if not options.folder and not options.curve:
        raise UsageError("name a folder to write the smaller model in, after SOURCE; or ask for --curve alone")
    if bool(options.folder) != (options.heads is not None):
        raise UsageError(
            "a folder and --heads (25%, or a number) go together: how many heads go, and where the rest is"
        )
    fraction = None if options.heads is None else share_of(options.heads)
    folder = Path(options.folder)
    if options.folder and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ClearheadError(f"{folder} is already there and not an empty folder: name a new one, or empty it first")
    from clearhead.cli import console

    how = _how(options.ranking)
    model = console.load(options.source, options.loading)

    import clearhead
    from clearhead.lens.pruning.prune import prune, pruning_curve

    found: dict[str, Any] = {}
    if fraction is not None:
        with progress_bar("ranking heads", 1) as told:
            pruning = prune(model, fraction, by=options.ranking.by, progress=told, **how)
        with console.busy(f"writing {folder}"):
            clearhead.save(pruning.model, folder)
        files = {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
        found |= {**pruning.to_json(), "folder": str(folder), "files": files}
        if not options.json:
            tell(pruning)
            print(f"wrote {folder}", file=sys.stderr)
    if options.curve:
        with progress_bar("measuring the curve", 1) as told:
            curve = pruning_curve(model, progress=told, **how)
        found["curve"] = curve.to_json()
        if not options.json:
            tell_curve(curve)
    if options.json:
        console.print_json(found)


def share_of(text: str) -> float:
    """25% as 0.25, and a whole number as itself."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else int(text)
    except ValueError:
        raise UsageError(f"--heads is {text!r}; give a share of all heads, as in 25%, or a whole number") from None


def _how(ranking: Ranking) -> dict[str, Any]:
    """What the person asked for, as keywords of `prune` and `pruning_curve`."""
    if ranking.held_out is not None and ranking.text is None:
        raise UsageError("--held-out goes with --text: heads are ranked on the one and checked on the other")
    how: dict[str, Any] = {"seed": ranking.seed}
    how |= {} if ranking.tokens is None else {"max_tokens": ranking.tokens}
    names = {"text": ranking.text, "held_out": ranking.held_out}
    return how | {name: read_text(file) for name, file in names.items() if file is not None}


def read_text(name: str) -> str:
    """A file of text."""
    from clearhead.cli import console

    return "\n".join(console.read_lines(name))


def tell(pruning: Pruning) -> None:
    """The heads that went, by sub-layer, and what it costs and saves."""
    width = max(map(len, pruning.cut))
    for address, heads in pruning.cut.items():
        print(f"{address:<{width}}  without {', '.join(map(str, heads))}")
    (before, after), (more, fewer) = pruning.losses, pruning.parameters
    print(f"heads       {pruning.n_heads:,} to {pruning.n_heads - pruning.n_cut:,}")
    print(f"parameters  {more:,} to {fewer:,} ({more - fewer:,} fewer)")
    print(f"loss        {before:.4f} to {after:.4f} nats a token, held out")


def tell_curve(curve: PruningCurve) -> None:
    """The curve as a table."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    table = Table(title=curve.title, box=box.SIMPLE, title_justify="left")
    table.add_column("cut off")
    for label in curve.row_labels:
        table.add_column(label, justify="right")
    for label, values in zip(curve.column_labels, curve.values.T.tolist(), strict=True):
        table.add_row(label, *(f"{value:.4f}" for value in values))
    Console().print(table)
