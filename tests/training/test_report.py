"""The page that a run leaves, its curves, and what says how to make it again."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from clearhead.errors import ClearheadError
from clearhead.training.report import Told, command_of, page, write_reports
from clearhead.training.settings import leaves
from tests.training.samples import tiny

METRICS = [
    {"step": i, "loss": 5.0 - i, "lr": 0.1 * i, "norm": 1.0, "tokens_per_second": 100.0 * i, "utilisation": 0.25}
    for i in range(1, 4)
]
HELD = [{"step": 2, "held_out_loss": 3.5}, {"step": 3, "held_out_loss": 2.5}]


def told(**changes: Any) -> Told:
    parts: dict[str, Any] = {
        "name": "a <run>",
        "command": "clearhead train x --set 'a=<b>'",
        "config": tiny(),
        "data": {"kind": "samples", "n": 10},
        "measured": {"held_out_loss": 2.5, "bits_per_byte": 1.234, "steps": 3},
        "n_parameters": 12345,
        "metrics": [*METRICS, *HELD],
    }
    return Told(**parts | changes)


class Reader(HTMLParser):
    """What a page asks for, and its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.fetched: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [value or "" for name, value in attributes if name in ("src", "href", "srcset", "data")]


def test_the_page_holds_everything_and_fetches_nothing(tmp_path: Path) -> None:
    (tmp_path / "step-000001.txt").write_text("an old one")
    (tmp_path / "step-000003.txt").write_text("given   <def>\n")
    (tmp_path / "step-000003.svg").write_text("<svg/>")
    text = page(told(), tmp_path)
    reader = Reader()
    reader.feed(text)
    assert reader.tags.count("svg") == 5  # loss, rate, gradient, tokens a second, utilisation
    assert [link[:26] for link in reader.fetched] == ["data:image/svg+xml;base64,"]
    assert "url(" not in text and "@import" not in text and "<script" not in text
    for path, _ in leaves(tiny(), fold=True):
        assert f"<dt>{path}</dt>" in text
    assert "clearhead train x --set &#x27;a=&lt;b&gt;&#x27;" in text
    assert "a &lt;run&gt;" in text and "given   &lt;def&gt;" in text and "an old one" not in text
    assert "12,345 parameters" in text and "1.234" in text
    assert "prefers-color-scheme: dark" in text
    assert not re.search(r"@[A-Z]+@", text)


def test_a_run_without_samples_or_metrics_has_a_page_too() -> None:
    assert "<svg" not in page(told(metrics=[], measured={}))


def test_both_files_say_how_it_was_made(tmp_path: Path) -> None:
    write_reports(tmp_path, told())
    said = json.loads((tmp_path / "report.json").read_text())
    assert said["command"].startswith("clearhead train x") and said["bits_per_byte"] == 1.234
    assert said["versions"]["torch"] and said["config"]["run"]["steps"] == 12
    assert said["data_hash"] in (tmp_path / "report.html").read_text()
    with pytest.raises(ClearheadError, match="can't be written"):
        write_reports(tmp_path / "nowhere" / "at all", told())


def test_the_command_is_what_is_typed() -> None:
    assert command_of("x", ("a.b=1", "c=d e"), "runs/y") == "clearhead train x --out runs/y --set a.b=1 --set 'c=d e'"
    assert command_of("x", (), None) == "clearhead train x"
