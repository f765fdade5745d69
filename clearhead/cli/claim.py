"""`clearhead claim [NAME]`: measure what the lesson says; without a name, list what can be measured."""

from __future__ import annotations

import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import Positional, arg

from clearhead.cli.options import OptionalInt, OptionalText
from clearhead.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.text import Text

    from clearhead.claims.whole import Outcome

FOLDER = "claims"


@dataclass(frozen=True, kw_only=True)
class Options:
    name: Annotated[Positional[str], arg(metavar="NAME", help_behavior_hint="")] = ""
    """The claim; without one, all are listed by chapter, with what they say and the minutes of a full run."""
    all: bool = False
    """Measure every one, side by side, and write a table and an index page."""
    quick: bool = False
    """In under 30 seconds each, at a smaller size or on a shipped model."""
    seeds: OptionalInt = None
    """How many; as many as the claim asks for when not given, and one with --quick."""
    out: OptionalText = None
    """The folder for results, figures and reports; claims when not given. What is there already, by the same code, is
    not measured again."""
    fresh: bool = False
    """Measure again what is there."""
    jobs: OptionalInt = None
    """With --all: how many are measured at a time; one a processor when not given."""
    json: bool = False
    """Print every number as JSON, or the list."""


def run(options: Options) -> int | None:
    if options.name and options.all:
        raise UsageError("--all measures every claim; leave the name out")
    if options.jobs is not None and not options.all:
        raise UsageError("--jobs is about --all")
    asked = (options.quick, options.seeds, options.out, options.fresh)
    if not options.name and not options.all and any(asked):
        raise UsageError("name a claim, or give --all; `clearhead claim` lists them")
    from clearhead.cli import console

    with console.busy("starting"):
        console.import_torch()
        import clearhead.claims.whole  # noqa: F401
    if not options.name and not options.all:
        _list(options)
        return None
    folder = Path(options.out or FOLDER).expanduser()
    try:
        if options.all:
            return _all(options, folder)
        _one(options, folder)
    except KeyboardInterrupt:
        again = "the same command without --fresh" if options.fresh else "the same command"
        print(f"\nWhat was measured is kept in {folder}; {again} goes on from there.", file=sys.stderr)
        raise
    return None


def _one(options: Options, folder: Path) -> None:
    from clearhead.claims.ask import claim
    from clearhead.claims.report import PAGE
    from clearhead.cli import console

    result = claim(options.name, quick=options.quick, seeds=options.seeds, out=folder, fresh=options.fresh)
    if options.json:
        console.print_json(result.to_json())
        return
    result.show()
    print(f"wrote {folder / result.name / PAGE}", file=sys.stderr)


def _all(options: Options, folder: Path) -> int:
    from clearhead.claims.catalogue import names
    from clearhead.claims.display import Display
    from clearhead.claims.index import INDEX, summary, to_json, write_index
    from clearhead.claims.seeds import Size
    from clearhead.claims.whole import measure_all
    from clearhead.cli import console

    size = Size(quick=options.quick, folder=folder, since=time.time() if options.fresh else 0)
    with Display() as display:
        outcomes = measure_all(names(), size, seeds=options.seeds, jobs=options.jobs, display=display)
    write_index(outcomes, folder, quick=options.quick)
    if options.json:
        console.print_json(to_json(outcomes, quick=options.quick))
    else:
        _print_table(outcomes)
        print(f"\n{summary(outcomes)}")
        print(f"wrote {folder / INDEX}", file=sys.stderr)
    return int(any(outcome.problem for outcome in outcomes))


def _print_table(outcomes: Sequence[Outcome]) -> None:
    """A line a claim, with the mark that its verdict hangs on."""
    from clearhead.claims import words
    from clearhead.claims.catalogue import find
    from clearhead.claims.index import state, why_not
    from clearhead.claims.tables import show, table, verdict
    from clearhead.costs.units import in_seconds

    heads = ("claim", "S", "number", "measured", "mark", "verdict", "time")
    rows: list[tuple[str | Text, ...]] = []
    for outcome in outcomes:
        about = (outcome.name, words.statements(find(outcome.name).source.statements))
        if (result := outcome.result) is None:
            rows.append((*about, why_not(outcome), "", "", state(outcome), ""))
            continue
        one = result.deciding
        number = (words.name(one.mark.of), words.measured(one.number, one.mark.unit), words.mark(one.mark))
        rows.append((*about, *number, verdict(result.verdict), in_seconds(result.seconds)))
    show(table(heads, rows, right=["time"]))


def _list(options: Options) -> None:
    from rich.text import Text

    from clearhead.claims import words
    from clearhead.claims.catalogue import CHAPTERS, TITLES, find, names, of_chapter
    from clearhead.claims.tables import show, table
    from clearhead.cli import console
    from clearhead.costs.units import digits

    if options.json:
        console.print_json({"claims": [_about(name) for name in names()]})
        return
    rows: list[tuple[str | Text, ...]] = []
    for chapter in CHAPTERS:
        rows += [("", "", "", "")] * bool(rows) + [(Text(TITLES[chapter], "bold"), "", "", "")]
        claims = {name: find(name) for name in of_chapter(chapter)}
        rows += [
            (f"  {name}", words.statements(claim.source.statements), digits(claim.cost.minutes, 2), _first(claim.says))
            for name, claim in claims.items()
        ]
    show(table(("", "S", "minutes", "what it says"), rows, right=["minutes"], cut=["what it says"]))


def _first(text: str) -> str:
    """Its first sentence; dots that stand for words left out end none."""
    return re.split(r"(?<=[^.]\.) (?=[A-Z])", text)[0]


def _about(name: str) -> dict[str, Any]:
    from dataclasses import asdict

    from clearhead.claims.catalogue import chapter_of, find

    claim = find(name)
    about = {"name": name, "chapter": chapter_of(name), "statements": claim.source.statements, "says": claim.says}
    return {**about, "source": claim.source.paper, "how": claim.how, "seeds": claim.seeds, "cost": asdict(claim.cost)}
