"""`clearhead embed SOURCE FILE`: a vector for every line, and the lines nearest to a question."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

import tyro
from tyro.conf import Positional

from clearhead.cli.options import Loading, OptionalText, Source
from clearhead.errors import ClearheadError, UsageError
from clearhead.files import into_place
from clearhead.progress import progress_bar

if TYPE_CHECKING:
    from torch import Tensor

Pool = Annotated[
    Union[Literal["mean", "first", "last", "head"], None],  # noqa: UP007
    tyro.conf.arg(metavar="mean|first|last|head", help_behavior_hint=""),
]


@dataclass(frozen=True, kw_only=True)
class Options:
    source: Source
    """A folder, a .gguf file, a name on the Hub, or a shipped model such as minilm-l6."""
    file: Annotated[Positional[str], tyro.conf.arg(metavar="FILE", help_behavior_hint="")]
    """A text file, one text a line; "-" is standard input."""
    out: OptionalText = None
    """Write the vectors to this .npy file: one row a line, of length one (zeros for an empty line)."""
    search: OptionalText = None
    """List the lines nearest to this text."""
    top: int = 5
    """How many of them."""
    pool: Pool = None
    """What of a text's tokens becomes its vector; what the checkpoint says, or else their mean, when not given."""
    loading: Loading
    json: bool = False
    """Print what was found as JSON; without --search and --out, with the vectors."""


def run(options: Options) -> None:
    from clearhead.cli import console

    if options.top < 1:
        raise UsageError(f"--top is {options.top}; list at least one line")
    out = _check_out(options.out)
    if options.search is not None and not options.search.strip():
        raise UsageError("--search is empty; give a text to search for")
    lines = console.read_lines(options.file)
    model = console.load(options.source, options.loading)
    from clearhead.generation.embed import embed, embedding_plan, encoded, nearest

    plan = embedding_plan(model, options.pool)
    cut = encoded(model, lines, plan.limit)[1]
    empty = [i for i, line in enumerate(lines) if not line.strip()]
    with progress_bar(f"reading {len(lines)} lines", len(lines) - len(empty)) as told:
        vectors_ND = embed(model, lines, pooling=plan.pooling, progress=told)
    _note(cut, f"longer than {plan.limit} tokens and read only so far")
    _note(empty, "empty: zeros, which no search finds")
    if out is not None:
        _write(out, vectors_ND)
    found = (
        nearest(vectors_ND, embed(model, options.search, pooling=plan.pooling), options.top) if options.search else []
    )
    if options.json:
        about: dict[str, Any] = {
            "lines": len(lines),
            "width": vectors_ND.shape[1],
            "pooling": plan.pooling,
            "cut": [i + 1 for i in cut],
            "empty": [i + 1 for i in empty],
        }
        if options.search is not None:
            about["found"] = [{"line": i + 1, "score": score, "text": lines[i]} for i, score in found]
        elif out is None:
            about["vectors"] = vectors_ND.tolist()
        console.print_json(about)
    elif options.search is not None:
        _print_table(found, lines)
    elif out is None:
        print(f"{len(lines)} lines, {vectors_ND.shape[1]} numbers each; --out FILE keeps them, --search TEXT uses them")
    if out is not None:
        print(f"wrote {out}", file=sys.stderr)


def _check_out(name: str | None) -> Path | None:
    if name is None:
        return None
    path = Path(name).expanduser()
    if path.suffix != ".npy":
        raise UsageError(f"--out is {name}; vectors are written as .npy")
    if not path.parent.is_dir():
        raise ClearheadError(f"{path}: there is no folder {path.parent}; make it first, or name another")
    return path


def _write(path: Path, vectors_ND: Tensor) -> None:
    import numpy as np

    def save(temporary: Path) -> None:
        with temporary.open("wb") as file:  # given a name, numpy would add an ending to it
            np.save(file, vectors_ND.numpy())

    into_place(path, save)


def _note(lines: list[int], what: str) -> None:
    if lines:
        shown = ", ".join(str(i + 1) for i in lines[:8]) + (f" and {len(lines) - 8} more" if len(lines) > 8 else "")
        print(f"line{'s' if len(lines) > 1 else ''} {shown}: {what}", file=sys.stderr)


def _print_table(found: list[tuple[int, float]], lines: list[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    table.add_column("score", justify="right")
    table.add_column("line", justify="right")
    table.add_column("text", overflow="fold")
    for i, score in found:
        table.add_row(f"{score:.4f}", str(i + 1), Text(lines[i]))
    Console().print(table)
