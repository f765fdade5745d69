"""What all claims leave together: index.html, claims.json and claims.md, the table of this project's documents."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any

from clearhead.claims import words
from clearhead.claims.catalogue import CHAPTERS, TITLES, chapter_of, find, of_chapter
from clearhead.claims.report import FIGURE, PAGE, filled, verdict
from clearhead.claims.statements import REASONS, measured_by
from clearhead.claims.verdict import FAILS, HOLDS, OPEN
from clearhead.claims.whole import TRACEBACK, Outcome
from clearhead.costs.units import in_seconds
from clearhead.files import write_whole

INDEX, TABLE, DATA = "index.html", "claims.md", "claims.json"
NOT_RUN, ENDED = "not run", "ended with an error"


def write_index(outcomes: Sequence[Outcome], folder: Path, *, quick: bool) -> None:
    """All three files, each whole or not at all."""
    write_whole(
        folder / DATA, (json.dumps(to_json(outcomes, quick=quick), ensure_ascii=False, indent=1) + "\n").encode()
    )
    write_whole(folder / TABLE, table(outcomes, quick=quick).encode())
    write_whole(folder / INDEX, page(outcomes, quick=quick).encode())


# ---- what is told in each form


def state(outcome: Outcome) -> str:
    """The verdict, or why there is none."""
    if outcome.result is not None:
        return outcome.result.verdict
    return NOT_RUN if outcome.needs else ENDED


def why_not(outcome: Outcome) -> str:
    return outcome.needs or outcome.problem or ""


def summary(outcomes: Sequence[Outcome]) -> str:
    """57 claims: 52 hold, 3 do not hold, 2 can't be told at this size"""
    found = Counter(map(state, outcomes))
    told = {
        HOLDS: ("holds", "hold"),
        FAILS: ("does not hold", "do not hold"),
        OPEN: ("can't be told at this size",) * 2,
        NOT_RUN: ("was not run", "were not run"),
        ENDED: (ENDED,) * 2,
    }
    parts = [f"{found[one]} {text[found[one] > 1]}" for one, text in told.items() if found[one]]
    return f"{len(outcomes)} claims: {', '.join(parts)}"


def made_with(outcomes: Sequence[Outcome], *, quick: bool) -> str:
    """Seeds, time, machine, versions and dates in a sentence."""
    seeds = [seed for one in outcomes if one.result for seed in one.result.seeds]
    if not seeds:
        return "Nothing was measured."
    kind = "Quick runs" if quick else "Full runs"
    dates = sorted({seed.date[:10] for seed in seeds})
    when = dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"
    n = Counter(len(one.result.seeds) for one in outcomes if one.result)
    each = ", ".join(f"{n[k]} {'claim' if n[k] == 1 else 'claims'} with {_seeds(k)}" for k in sorted(n))
    with_ = max(seeds, key=lambda seed: seed.date).made_with
    versions = ", ".join(f"{name} {version}" for name, version in with_.items() if name != "machine")
    took, cpu = (in_seconds(sum(times)) for times in zip(*((s.seconds, s.cpu_seconds) for s in seeds), strict=True))
    return f"{kind}: {each}; {took} of measuring, {cpu} of processors; {with_['machine']}; {versions}; {when}."


def _seeds(n: int) -> str:
    return "1 seed" if n == 1 else f"{n} seeds"


def to_json(outcomes: Sequence[Outcome], *, quick: bool) -> dict[str, Any]:
    """Everything but what figures are drawn from, which is in each claim's own file."""
    return {
        "quick": quick,
        "summary": summary(outcomes),
        "made_with": made_with(outcomes, quick=quick),
        "claims": [_as_json(outcome) for outcome in outcomes],
        "statements": {f"S{number}": claims or REASONS.get(number) for number, claims in measured_by().items()},
    }


def _as_json(outcome: Outcome) -> dict[str, Any]:
    if outcome.result is not None:
        found = outcome.result.to_json()
        return {key: value for key, value in found.items() if key != "seeds"} | {"n_seeds": len(found["seeds"])}
    claim = find(outcome.name)
    about = {"claim": outcome.name, "chapter": chapter_of(outcome.name), "statements": claim.source.statements}
    return {**about, "says": claim.says, "verdict": state(outcome), "why": why_not(outcome)}


def table(outcomes: Sequence[Outcome], *, quick: bool) -> str:
    """Markdown: every claim with every mark, then every statement."""
    lines = ["# Every claim, measured", "", f"{summary(outcomes)}.", "", made_with(outcomes, quick=quick)]
    for chapter, inside in _by_chapter(outcomes):
        heads = ("claim", "S", "number", "measured", "mark", "verdict", "time")
        lines += ["", f"## {TITLES[chapter]}", "", _row(heads), _row(["---"] * len(heads))]
        lines += [_row(cells) for outcome in inside for cells in _cells(outcome)]
    lines += ["", "## Statements of the lesson", "", _row(("S", "measured by, or why not")), _row(["---"] * 2)]
    lines += [_row((f"S{number}", text)) for number, text in _statements()]
    return "\n".join(lines) + "\n"


def _row(cells: Sequence[str]) -> str:
    # What a claim ended with may have several lines, and a row has one.
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |"


def _cells(outcome: Outcome) -> Iterator[Sequence[str]]:
    """A row a mark; what is about the claim stands in the first."""
    claim, result = find(outcome.name), outcome.result
    about = [f"**{outcome.name}**: {claim.says}", words.statements(claim.source.statements)]
    if result is None:
        yield (*about, "", why_not(outcome), "", f"**{state(outcome)}**", "")
        return
    for i, one in enumerate(result.marks):
        number = (words.name(one.mark.of), words.measured(one.number, one.mark.unit), words.mark(one.mark))
        yield (*(["", ""] if i else about), *number, one.verdict, "" if i else in_seconds(result.seconds))


def _statements(name: Callable[[str], str] = str) -> Iterator[tuple[int, str]]:
    """Every statement's number, and the claims that measure it or why none does. name: how a claim is named."""
    for number, claims in measured_by().items():
        yield number, ", ".join(map(name, claims)) or REASONS.get(number, "")


# ---- the page


def page(outcomes: Sequence[Outcome], *, quick: bool) -> str:
    """The page, from index.html beside this file; it shows the figures that lie in the claims' folders."""
    return filled(
        "index.html",
        {
            "SUMMARY": escape(summary(outcomes)),
            "MADE": escape(made_with(outcomes, quick=quick)),
            "CHAPTERS": "".join(
                f'<h2>{escape(TITLES[chapter])}</h2><div class="cards">{"".join(map(_card, inside))}</div>'
                for chapter, inside in _by_chapter(outcomes)
            ),
            "STATEMENTS": "".join(
                f'<tr><th scope="row">S{number}</th><td>{text}</td></tr>'
                for number, text in _statements(lambda name: f'<a href="#{name}">{name}</a>')
            ),
        },
    )


def _card(outcome: Outcome) -> str:
    claim, result = find(outcome.name), outcome.result
    name, numbers = escape(outcome.name), words.statements(claim.source.statements)
    says = f"<p>{escape(claim.says)}</p>"
    if result is None:
        there = f'<a href="{name}/{TRACEBACK}">where</a>' if outcome.problem else ""
        badge = f'<span class="verdict">{state(outcome)}</span>'
        return (
            f'<article id="{name}"><h3>{name} <span class="faint">{numbers}</span></h3>{badge}{says}'
            f'<p class="faint">{escape(why_not(outcome))} {there}</p></article>'
        )
    one = result.deciding
    rest = len(result.marks) - 1
    more = f", and {rest} more" if rest else ""
    return (
        f'<article id="{name}"><a href="{name}/{PAGE}"><img class="thumb" loading="lazy" alt="" src="{name}/{FIGURE}">'
        f'<h3>{name}</h3></a><div class="faint">{numbers}, {in_seconds(result.seconds)}</div>'
        f"{verdict(result.verdict)}{says}"
        f"<small>{escape(words.name(one.mark.of))}: {escape(words.measured(one.number, one.mark.unit))}; "
        f"asked {escape(words.mark(one.mark))}{more}</small></article>"
    )


def _by_chapter(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, list[Outcome]]]:
    for chapter in CHAPTERS:
        inside = [outcome for outcome in outcomes if outcome.name in of_chapter(chapter)]
        if inside:
            yield chapter, inside
