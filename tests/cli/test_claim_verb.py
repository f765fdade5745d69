"""`clearhead claim`: the list. What measures is tested beside `claims`."""

from __future__ import annotations

import json

import pytest

from clearhead.claims.catalogue import CHAPTERS, TITLES, names
from clearhead.cli import main


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claim"]) == 0
    lines = capsys.readouterr().out.splitlines()
    firsts = [line.split("  ")[0] if line[:1].strip() else line.split()[0] for line in lines[1:] if line]
    expected = [word for chapter, inside in CHAPTERS.items() for word in (TITLES[chapter], *inside)]
    assert [word.replace("-", "_") for word in firsts] == expected
    assert "minutes" in lines[0] and "S" in lines[0]


def test_the_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claim", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)["claims"]
    assert [claim["name"] for claim in listed] == names()
    one = next(claim for claim in listed if claim["name"] == "knife-edge")
    assert one["chapter"] == "recurrence" and 6 in one["statements"] and one["cost"]["minutes"] > 0
    assert one["says"] and one["how"] and one["source"] and one["seeds"] >= 1


def test_an_unknown_claim_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["claim", "knife-ege"]) == 2
    assert capsys.readouterr().err.startswith("clearhead: error: there is no claim 'knife-ege'; perhaps knife-edge")
