"""The papers of the lesson, their claims and what was measured of them."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlsplit

import clearhead
from clearhead.claims.catalogue import find, names
from clearhead.studio.context import Studio
from clearhead.studio.lesson.papers import PAPERS
from clearhead.studio.models import Models
from clearhead.studio.operations import Answer, ask
from tests.studio.snippets import assert_prints

YEARS = [1994, 1997, 2014, 2017, 2021, 2020, 2020, 2018, 2020, 2024, 2022, 2023, 2024, 2023, 2023]


def listed(folder: Path | None = None) -> Answer:
    answer = ask(Studio(models=Models(), runs=None, claims=folder), "papers.list", {})  # type: ignore[arg-type]
    assert isinstance(answer, Answer)
    return answer


def test_fifteen_papers_in_the_lessons_order() -> None:
    assert [paper.year for paper in PAPERS] == YEARS
    assert all(urlsplit(paper.link).hostname in ("arxiv.org", "doi.org") for paper in PAPERS)
    assert all(paper.says.endswith(".") and paper.says.count(". ") == 0 for paper in PAPERS), "one sentence each"


def test_every_paper_is_measured_by_claims_that_name_it() -> None:
    for paper, shown in zip(PAPERS, listed().data["papers"], strict=True):
        assert shown["claims"]
        assert {claim["name"] for claim in shown["claims"]} == {
            name for name in names() if paper.named in find(name).source.paper
        }
        assert not any("verdict" in claim for claim in shown["claims"])
    assert_prints(listed(), least=15)


def test_verdicts_come_from_the_folder_of_reports(tmp_path: Path) -> None:
    """What is no report is passed over, whatever is wrong with it."""
    report = json.dumps(clearhead.claim("mixture", quick=True, progress=False).to_json())
    damaged = {"learned-keys": "broken", "agreement": '{"verdict": "holds"}', "two-thirds": "[" * 100_000}
    for name, text in {"mixture": report, **damaged}.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "result.json").write_text(text)
    data = listed(tmp_path).data
    shown = {claim["name"]: claim for paper in data["papers"] for claim in paper["claims"]}
    assert (shown["mixture"]["verdict"], shown["mixture"]["quick"]) == ("holds", True)
    assert not any("verdict" in claim for name, claim in shown.items() if name != "mixture")
    assert data["measured"] == 1
