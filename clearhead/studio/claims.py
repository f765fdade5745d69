"""The claims of the lesson: all of them with their verdicts, the report on one, and a quick run from the page."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from clearhead.claims import words
from clearhead.claims.catalogue import CHAPTERS, TITLES, chapter_of, find, module_of, names, of_chapter
from clearhead.claims.claim import Mark
from clearhead.claims.extras import missing
from clearhead.claims.report import FIGURE, RESULT
from clearhead.claims.statements import REASONS, measured_by
from clearhead.claims.verdict import FAILS, HOLDS, OPEN, Estimate
from clearhead.costs.units import in_seconds
from clearhead.errors import ClearheadError
from clearhead.studio.measuring import Measurement, measured
from clearhead.studio.operations import Answer, operation

if TYPE_CHECKING:
    from clearhead.studio.context import Studio

Name = Annotated[str, Field(max_length=60)]
Again = Annotated[int, Field(ge=0, le=10**9)]
"""A page asks anew where a question changes: another number is the same question again."""
MAX_BYTES = 8 << 20
"""Of a file of a report."""
FOLDER = "claims"
"""Where `clearhead claim` writes when it is not told where."""

_quick: dict[str, Measurement] = {}
"""What was measured from the page, as long as this Studio lives."""
_kept: dict[Path, tuple[tuple[int, int], dict[str, Any]]] = {}


@operation("claims.list")
def listed(studio: Studio, *, again: Again = 0) -> Answer:
    """Every claim by chapter with its verdict, where there is one, and every statement with the claims behind it."""
    results = {name: kept_result(studio, name) or _quick_result(name) for name in names()}
    verdicts = Counter(result["verdict"] for result in results.values() if result is not None)
    return Answer(
        data={
            "chapters": [
                {
                    "key": chapter,
                    "title": TITLES[chapter],
                    "minutes": sum(find(name).cost.minutes for name in of_chapter(chapter)),
                    "claims": [_line(name, results[name]) for name in of_chapter(chapter)],
                }
                for chapter in CHAPTERS
            ],
            "statements": [
                {"number": number, "claims": claims, "reason": REASONS.get(number)}
                for number, claims in measured_by().items()
            ],
            "n": len(results),
            "measured": sum(result is not None for result in results.values()),
            "holds": verdicts[HOLDS],
            "fails": verdicts[FAILS],
            "open": verdicts[OPEN],
            "folder": None if studio.claims is None else str(studio.claims),
            "command": f"clearhead claim --all --out {FOLDER}",
            "minutes": sum(find(name).cost.minutes for name in names()),
        },
        python="from clearhead.claims.catalogue import names\n\nprint(len(names()))\n",
        printed=(float(len(results)),),
    )


@operation("claims.report")
def report(studio: Studio, *, name: Name = "factor-to-the-power", again: Again = 0) -> Answer:
    """One claim: what it says, where that comes from, how it is measured; and what was measured, from the folder of
    reports and from the page.
    """
    claim = find(name)
    kept, quick = kept_result(studio, name), _quick_result(name)
    shown = kept if kept is not None else quick
    data = {
        "name": name,
        "chapter": {
            "key": chapter_of(name),
            "title": TITLES[chapter_of(name)],
            "number": 1 + list(CHAPTERS).index(chapter_of(name)),
        },
        "statements": claim.source.statements,
        "says": claim.says,
        "paper": claim.source.paper,
        "how": claim.how,
        "asked": [{"name": words.name(mark.of), "mark": words.mark(mark), "why": mark.why} for mark in claim.marks],
        "n_marks": len(claim.marks),
        "minutes": claim.cost.minutes,
        "seeds": claim.seeds,
        "needs": missing(claim.cost.needs),
        "kept": None if kept is None else _told(kept, _figure(studio, name)),
        "quick": None if quick is None else _told(quick, _quick[name].figure),
        "no_figure": _quick[name].no_figure if quick is not None else None,
        "command": f"clearhead claim {name} --out {FOLDER}",
        "module": module_of(name),
        "source": _source(name),
        "neighbours": _neighbours(name),
    }
    if shown is None:
        return Answer(data=data, python=_look_at(name), printed=(float(len(claim.marks)),))
    numbers = [number["mean"] for number in shown["numbers"].values()]
    return Answer(
        data=data,
        python=_read_again(studio, name) if kept is not None else _measure_again(name),
        printed=tuple(number for number in numbers if number is not None),
    )


@operation("claims.measure")
def measure(*, name: Name = "factor-to-the-power") -> Iterator[Answer | None]:
    """A quick run in a process of its own: how far it is, and at the end its result. Closing it ends the process."""
    claim = find(name)
    if problem := missing(claim.cost.needs):
        raise ClearheadError(f"the claim {name} {problem}")
    for told in measured(name):
        if isinstance(told, Measurement):
            _quick[name] = told
            yield Answer(
                data={"name": name, "done": True, "verdict": told.result["verdict"]},
                python=_measure_again(name),
                printed=tuple(
                    number["mean"] for number in told.result["numbers"].values() if number["mean"] is not None
                ),
            )
        elif told is None:
            yield None
        else:
            what, done, total = told
            yield Answer(data={"name": name, "done": False, "what": what, "steps": done, "of": total})


# ---- what was measured


def kept_result(studio: Studio, name: str) -> dict[str, Any] | None:
    """The result that `clearhead claim` left in the folder; None where there is none, or none that can be read."""
    if studio.claims is None:
        return None
    file = studio.claims / name / RESULT
    try:
        about = file.stat()
        stamp = (about.st_mtime_ns, about.st_size)
        if file not in _kept or _kept[file][0] != stamp:
            if about.st_size > MAX_BYTES:
                return None
            found = json.loads(file.read_text(encoding="utf-8"))
            if not isinstance(found, dict) or found.get("claim") != name:
                return None
            _told(found, None)  # what is no report shows here, and not when it is drawn
            _kept[file] = (stamp, found)
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return _kept[file][1]


def _quick_result(name: str) -> dict[str, Any] | None:
    return _quick[name].result if name in _quick else None


def _figure(studio: Studio, name: str) -> str | None:
    """The figure beside a result, as SVG. The page shows it as a picture, in which no script runs."""
    assert studio.claims is not None
    file = studio.claims / name / FIGURE
    try:
        return file.read_text(encoding="utf-8") if file.stat().st_size <= MAX_BYTES else None
    except (OSError, ValueError):
        return None


# ---- in words


def _line(name: str, result: Mapping[str, Any] | None) -> dict[str, Any]:
    """A claim among the others."""
    claim = find(name)
    about: dict[str, Any] = {
        "name": name,
        "says": claim.says,
        "statements": claim.source.statements,
        "minutes": claim.cost.minutes,
        "needs": missing(claim.cost.needs),
        "module": module_of(name),
        "verdict": None,
    }
    if result is None:
        return about
    marks = [_mark(mark, result["seeds"]) for mark in result["marks"]]
    deciding = next(one for verdict in (FAILS, OPEN, HOLDS) for one in marks if one["verdict"] == verdict)
    return {
        **about,
        "verdict": result["verdict"],
        "sign": words.sign(result["verdict"]),
        "took": _took(result),
        "deciding": deciding,
        "more": len(marks) - 1,
    }


def _told(result: Mapping[str, Any], figure: str | None) -> dict[str, Any]:
    """A result as the page shows it; numbers are the file's, and words are those of the library's own reports."""
    seeds = result["seeds"]
    last = max(seeds, key=lambda seed: str(seed["date"]))
    return {
        "verdict": result["verdict"],
        "sign": words.sign(result["verdict"]),
        "is_quick": bool(result["quick"]),
        "took": _took(result),
        "date": str(last["date"])[:10],
        "made_with": {str(key): str(value) for key, value in last["made_with"].items()},
        "command": str(result["command"]),
        "marks": [_mark(mark, seeds) for mark in result["marks"]],
        "numbers": [_number(name, number, seeds) for name, number in result["numbers"].items()],
        "n_seeds": len(seeds),
        "figure": figure,
    }


def _mark(found: Mapping[str, Any], seeds: list[Mapping[str, Any]]) -> dict[str, Any]:
    mark = Mark(**{field.name: found[field.name] for field in fields(Mark) if field.name in found})
    return {
        "name": words.name(mark.of),
        "why": mark.why,
        "measured": _words(found["number"], mark.unit),
        "mean": found["number"]["mean"],
        **_working(mark.of, found["number"], seeds),
        "mark": words.mark(mark),
        "verdict": found["verdict"],
        "sign": words.sign(found["verdict"]),
    }


def _number(name: str, number: Mapping[str, Any], seeds: list[Mapping[str, Any]]) -> dict[str, Any]:
    """A number over seeds and of each."""
    each = [seed["measured"]["values"].get(name) for seed in seeds] if len(seeds) > 1 else []
    return {
        "name": words.name(name),
        "measured": _words(number),
        "mean": number["mean"],
        **_working(name, number, seeds),
        "seeds": [_words(dict(zip(("mean", "low", "high"), _ends(one), strict=True))) for one in each],
    }


def _working(name: str, number: Mapping[str, Any], seeds: list[Mapping[str, Any]]) -> dict[str, Any]:
    """What a number over seeds is made of: each seed's, and the ends of the interval."""
    each = [_ends(seed["measured"]["values"].get(name))[0] for seed in seeds]
    return {
        "each": [one if isinstance(one, int | float) and math.isfinite(one) else None for one in each],
        "low": number["low"],
        "high": number["high"],
    }


def _ends(value: Any) -> tuple[Any, Any, Any]:
    """A seed's number, with the interval that it may bring itself."""
    return (value[0], value[1], value[2]) if isinstance(value, list) else (value, value, value)


def _words(number: Mapping[str, Any], unit: str = "") -> str:
    """As reports write it; a number that was none, or infinite, is null in the file."""
    if any(not isinstance(number[end], int | float) for end in ("mean", "low", "high")):
        return "not a number"
    estimate = Estimate(*(float(number[end]) for end in ("mean", "low", "high")))
    return words.measured(estimate, unit) if math.isfinite(estimate.mean) else "not a number"


def _took(result: Mapping[str, Any]) -> str:
    n = len(result["seeds"])
    kind = "quick run" if result["quick"] else "full run"
    return f"{kind}, {n} {'seed' if n == 1 else 'seeds'}, {in_seconds(float(result['seconds']))}"


def _neighbours(name: str) -> dict[str, str | None]:
    """The claims before and after it."""
    every = names()
    at = every.index(name)
    return {"before": every[at - 1] if at else None, "after": every[at + 1] if at + 1 < len(every) else None}


# ---- as code


@cache
def _source(name: str) -> str:
    """The file that the claim is written in."""
    from importlib.util import find_spec

    spec = find_spec(module_of(name))
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).read_text(encoding="utf-8")


def _read_again(studio: Studio, name: str) -> str:
    assert studio.claims is not None
    return (
        "import json\n"
        "from pathlib import Path\n\n"
        f"result = json.loads(Path({str(studio.claims / name / RESULT)!r}).read_text())\n"
        'print(result["verdict"])\n'
        'for number in result["numbers"].values():\n'
        '    if number["mean"] is not None:\n'
        '        print(number["mean"])\n'
    )


def _measure_again(name: str) -> str:
    return (
        "import clearhead\n\n"
        f"result = clearhead.claim({name!r}, quick=True, progress=False)\n"
        "print(result.verdict)\n"
        "for number in result.numbers.values():\n"
        "    print(number.mean)\n"
    )


def _look_at(name: str) -> str:
    return f"from clearhead.claims.catalogue import find\n\nprint(len(find({name!r}).marks))\n"
