"""The page of claims: what the catalogue says, what reports in a folder say, and a quick run that can be stopped."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import clearhead
from clearhead.claims.catalogue import find, names
from clearhead.claims.report import page
from clearhead.claims.statements import N_STATEMENTS
from clearhead.errors import ClearheadError, UsageError
from clearhead.studio import claims, measuring
from clearhead.studio.measuring import Measurement, measured
from tests.studio.snippets import assert_prints

NAME = "mixture"


@pytest.fixture(autouse=True)
def _nothing_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "_quick", {})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `clearhead claim mixture --quick --out` leaves, less the drawing of it."""
    folder = tmp_path_factory.mktemp("claims")
    (folder / NAME).mkdir()
    result = clearhead.claim(NAME, quick=True, progress=False)
    (folder / NAME / "result.json").write_text(json.dumps(result.to_json()))
    (folder / NAME / "figure.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>")
    return folder


def studio(folder: Path | None) -> Any:
    return SimpleNamespace(claims=folder)


def test_every_claim_and_every_statement_is_listed() -> None:
    found = claims.listed(studio(None)).data
    listed = [claim["name"] for chapter in found["chapters"] for claim in chapter["claims"]]
    assert listed == names() and found["n"] == len(names())
    assert [one["number"] for one in found["statements"]] == list(range(1, N_STATEMENTS + 1))
    assert all(one["claims"] or one["reason"] for one in found["statements"])
    assert found["measured"] == 0 and found["folder"] is None
    assert found["minutes"] == pytest.approx(sum(find(name).cost.minutes for name in names()))


def test_the_list_has_the_verdicts_of_the_folder(folder: Path) -> None:
    answer = claims.listed(studio(folder))
    assert (answer.data["measured"], answer.data["holds"], answer.data["fails"]) == (1, 1, 0)
    (line,) = [c for chapter in answer.data["chapters"] for c in chapter["claims"] if c["name"] == NAME]
    assert line["verdict"] == "holds" and line["sign"] == "✓" and line["more"] == len(find(NAME).marks) - 1
    assert line["deciding"]["mean"] == claims.report(studio(folder), name=NAME).data["kept"]["marks"][0]["mean"]
    assert_prints(answer)


def test_a_report_says_what_the_librarys_own_page_says(folder: Path) -> None:
    answer = claims.report(studio(folder), name=NAME)
    told, result = answer.data["kept"], clearhead.claim(NAME, quick=True, progress=False)
    written = page(result, "<svg width='1pt' height='1pt'></svg>".replace("'", '"'))
    assert told["verdict"] == result.verdict and told["command"] == result.command
    assert [one["mean"] for one in told["marks"]] == [one.number.mean for one in result.marks]
    assert [one["mean"] for one in told["numbers"]] == [number.mean for number in result.numbers.values()]
    for one in (*told["marks"], *told["numbers"]):
        assert f">{one['measured']}<" in written
    for one in told["marks"]:
        assert f">{one['mark']}<" in written
    assert answer.data["says"] == find(NAME).says and "CLAIM = Claim(" in answer.data["source"]
    assert answer.data["neighbours"] == {"before": "longer-query", "after": "learned-keys"}
    assert_prints(answer, least=5)


def test_a_claim_without_a_report_says_what_it_is_to_reach() -> None:
    answer = claims.report(studio(None), name="knife-edge")
    assert answer.data["kept"] is None and answer.data["quick"] is None
    assert len(answer.data["asked"]) == len(find("knife-edge").marks)
    assert answer.data["command"] == "clearhead claim knife-edge --out claims"
    assert answer.data["n_marks"] == len(find("knife-edge").marks)
    assert_prints(answer)


@pytest.mark.parametrize("name", ["../mixture", "mixture/../x", "", "nothing", "mixture\0", "__init__", "mixture.json"])
def test_a_name_is_never_a_path(folder: Path, name: str) -> None:
    with pytest.raises(UsageError, match="there is no claim"):
        claims.report(studio(folder / NAME), name=name)


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", "{}", '{"claim": "other"}', '{"claim": "mixture", "seeds": []}', b"\xff\xfe{"],
)
def test_what_is_no_report_is_no_report(tmp_path: Path, content: str | bytes) -> None:
    (tmp_path / NAME).mkdir()
    file = tmp_path / NAME / "result.json"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert claims.report(studio(tmp_path), name=NAME).data["kept"] is None
    assert claims.listed(studio(tmp_path)).data["measured"] == 0


def test_a_number_that_was_none_is_said_in_words(folder: Path, tmp_path: Path) -> None:
    found = json.loads((folder / NAME / "result.json").read_text())
    first = next(iter(found["numbers"]))
    found["numbers"][first] = {"mean": None, "low": None, "high": None}
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "result.json").write_text(json.dumps(found))
    answer = claims.report(studio(tmp_path), name=NAME)
    assert answer.data["kept"]["numbers"][0]["measured"] == "not a number"
    assert len(answer.printed) == len(found["numbers"]) - 1
    assert_prints(answer, least=4)


def test_a_report_that_is_written_anew_is_read_anew(folder: Path, tmp_path: Path) -> None:
    (tmp_path / NAME).mkdir()
    file = tmp_path / NAME / "result.json"
    for verdict in ("holds", "does not hold"):
        found = json.loads((folder / NAME / "result.json").read_text()) | {"verdict": verdict, "x": verdict}
        file.write_text(json.dumps(found))
        assert claims.report(studio(tmp_path), name=NAME).data["kept"]["verdict"] == verdict


# ---- a quick run


@pytest.mark.slow
def test_a_quick_run_gives_what_the_library_gives(folder: Path) -> None:
    answers = [one for one in claims.measure(name=NAME) if one is not None]
    assert answers[0].data == {"name": NAME, "done": False, "what": "starting", "steps": 0, "of": 1}
    last = answers[-1]
    assert last.data == {"name": NAME, "done": True, "verdict": "holds"}
    result = clearhead.claim(NAME, quick=True, progress=False)
    assert list(last.printed) == [number.mean for number in result.numbers.values()]
    told = claims.report(studio(None), name=NAME).data
    assert told["kept"] is None and told["quick"]["verdict"] == "holds" and told["quick"]["figure"].startswith("<?xml")
    both = claims.report(studio(folder), name=NAME).data
    assert both["kept"] and both["quick"]


@pytest.mark.slow
def test_a_quick_run_tells_how_far_it_is_and_stops_when_nobody_waits() -> None:
    run = measured("learned-keys")
    told = next(one for one in run if isinstance(one, tuple) and one[0] != "starting")
    assert told[0] == "steps" and told[2] == 200
    with pytest.raises(ClearheadError, match="another claim is being measured"):
        next(measured(NAME))
    began = time.monotonic()
    run.close()
    assert time.monotonic() - began < 5
    assert measuring._one_at_a_time.acquire(blocking=False)
    measuring._one_at_a_time.release()


@pytest.mark.slow
def test_a_quick_run_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "MAX_SECONDS", 0.3)
    with pytest.raises(ClearheadError, match=r"was stopped after 0 s; measure it with: clearhead claim knife-edge"):
        list(measured("knife-edge"))


@pytest.mark.slow
def test_what_goes_wrong_in_the_process_is_told() -> None:
    with pytest.raises(ClearheadError, match="could not be measured: there is no claim"):
        list(measured("nothing"))


def test_what_needs_a_package_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "missing", lambda modules: "needs it, which is not installed")
    with pytest.raises(ClearheadError, match=f"the claim {NAME} needs it"):
        next(claims.measure(name=NAME))
    assert isinstance(Measurement({}, None), Measurement)
