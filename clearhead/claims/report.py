"""What a claim leaves to be read: result.json, its figure, and report.html, one file with all that stands behind it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.claims import words
from clearhead.claims.catalogue import TITLES, chapter_of
from clearhead.claims.verdict import FAILS, HOLDS, Verdict, estimate
from clearhead.costs.units import in_seconds
from clearhead.files import write_whole
from clearhead.lens.views.webpage import variables

if TYPE_CHECKING:
    from clearhead.claims.result import Judged, Result

RESULT, PAGE = "result.json", "report.html"
FIGURE = "figure.svg"
CLASSES = {HOLDS: "yes", FAILS: "no"}


def write(result: Result, folder: Path) -> None:
    """All four files, each whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    svg, png = result.drawn("svg", "png")
    write_whole(folder / FIGURE, svg)
    write_whole(folder / "figure.png", png)
    write_whole(folder / PAGE, page(result, svg.decode()).encode())
    write_whole(folder / RESULT, (json.dumps(result.to_json(), ensure_ascii=False, indent=1) + "\n").encode())


def page(result: Result, svg: str | None = None) -> str:
    """The page, from report.html beside this file."""
    claim = result.claim
    return filled(
        "report.html",
        {
            "TITLE": escape(result.name),
            "CHAPTER": escape(TITLES[chapter_of(result.name)]),
            "STATEMENTS": words.statements(claim.source.statements),
            "SAYS": escape(claim.says),
            "VERDICT": verdict(result.verdict),
            "KIND": escape(result.took),
            "FIGURE": inline(svg or result.svg(), claim.says),
            "HOW": escape(claim.how),
            "SOURCE": escape(claim.source.paper),
            "MARKS": "".join(map(_mark, result.marks)),
            "NUMBERS": _numbers(result),
            "COMMAND": escape(result.command),
            "MADE": "".join(f"<dt>{escape(what)}</dt><dd>{escape(value)}</dd>" for what, value in _made(result)),
        },
    )


def filled(template: str, parts: dict[str, str]) -> str:
    """A template of this package, with the style of all of them, and `parts` where @NAME@ stands."""
    style, text = (
        files("clearhead.claims").joinpath(name).read_text(encoding="utf-8") for name in ("style.css", template)
    )
    marks = {"LIGHT": variables("light"), "DARK": variables("dark"), **parts}
    # In one go, so that what stands in a text is never taken for a mark.
    return re.sub("@([A-Z]+)@", lambda found: marks[found[1]], text.replace("@STYLE@", style))


def verdict(given: Verdict) -> str:
    """A verdict's badge."""
    return f'<span class="verdict {CLASSES.get(given, "open")}">{words.sign(given)} {escape(given)}</span>'


def inline(svg: str, says: str) -> str:
    """A figure as part of a page, as wide as there is room and never so small that it can't be read."""
    head, rest = svg[svg.index("<svg") :].split(">", 1)
    size = dict(re.findall(r' (width|height)="([\d.]+)pt"', head))
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    head += f' role="img" aria-label="{escape(says)}"'
    return f'<div class="figure" style="--width:{size["width"]}pt">{head}>{rest}</div>'


def _mark(one: Judged) -> str:
    mark = one.mark
    return (
        f'<tr><th scope="row">{escape(words.name(mark.of))}<small>{escape(mark.why)}</small></th>'
        f"{_cell('measured', words.measured(one.number, mark.unit))}{_cell('mark', words.mark(mark))}"
        f'<td data-of="verdict">{verdict(one.verdict)}</td></tr>'
    )


def _cell(of: str, text: str) -> str:
    return f'<td data-of="{of}">{escape(text)}</td>'


def _numbers(result: Result) -> str:
    """All numbers: over seeds, and of each where there are several."""
    n = len(result.seeds)
    heads = ["over seeds", *(f"seed {seed.seed}" for seed in result.seeds)] if n > 1 else ["measured"]
    rows = []
    for name, number in result.numbers.items():
        cells = [words.measured(number)]
        if n > 1:
            cells += [words.measured(estimate([seed.measured.values[name]])) for seed in result.seeds]
        rows.append((words.name(name), cells))
    head = "".join(f'<th scope="col">{escape(text)}</th>' for text in ["", *heads])
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>'
        + "".join(_cell(of, text) for of, text in zip(heads, cells, strict=True))
        + "</tr>"
        for name, cells in rows
    )
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _made(result: Result) -> Iterable[tuple[str, str]]:
    """When, how long, and with what."""
    seeds = result.seeds
    yield "seeds", ", ".join(str(seed.seed) for seed in seeds)
    yield "time", ", ".join(in_seconds(seed.seconds) for seed in seeds)
    yield "of processors", ", ".join(in_seconds(seed.cpu_seconds) for seed in seeds)
    yield "date", max(seed.date for seed in seeds)[:10]
    yield from seeds[-1].made_with.items()
