"""A figure saved as a file is the figure: the same numbers, and nothing of the Studio is needed to look at it."""

from __future__ import annotations

import json
import struct
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.studio.browser.conftest import Opener

FIGURES = (
    ("/learn/3-attention?step=softmax", "stepper"),
    ("/learn/2-lookup", "plane"),
    ("/learn/5-position", "clock"),
    ("/cost", "cost"),
)
NUMBERS = "figure => [...figure.querySelectorAll('.marks [data-value]')].map(one => one.dataset.value)"


def saved(page: Page, figure: str, kind: str, folder: Path) -> Path:
    menu = page.locator(f"[id='{figure}'] .save")
    if menu.get_attribute("open") is None:
        menu.locator("summary").click()
    with page.expect_download() as download:
        menu.get_by_role("button", name=kind.upper(), exact=True).click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    assert path.name == f"clearhead-{figure}.{kind}"
    return path


@pytest.mark.parametrize(("route", "figure"), FIGURES)
def test_a_saved_figure_stands_by_itself(
    opened: Opener, chromium: Browser, tmp_path: Path, route: str, figure: str
) -> None:
    page = opened().open(route)
    shown = page.locator(f"[id='{figure}']").evaluate(NUMBERS)
    assert shown

    path = saved(page, figure, "html", tmp_path)
    assert path.stat().st_size < 1_000_000
    assert "<script" not in path.read_text()
    context = chromium.new_context(viewport={"width": 1000, "height": 900})
    alone = context.new_page()
    asked: list[str] = []
    alone.on("request", lambda request: asked.append(request.url))
    complaints: list[str] = []
    alone.on("console", lambda message: complaints.append(message.text))
    alone.goto(path.as_uri())
    assert alone.locator("figure").evaluate(NUMBERS) == shown
    assert [url for url in asked if not url.startswith(("file:", "data:"))] == []
    assert complaints == []
    assert alone.evaluate("() => document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    context.close()

    drawing = ET.parse(saved(page, figure, "svg", tmp_path)).getroot()
    assert drawing.tag == "{http://www.w3.org/2000/svg}svg"
    tags = [element.tag.split("}")[-1] for element in drawing.iter()]
    assert tags.count("text") > 5
    assert not {"foreignObject", "script", "style"} & set(tags)

    picture = saved(page, figure, "png", tmp_path).read_bytes()
    assert picture[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", picture[16:24])
    assert width >= 1000
    assert height >= 300

    told = json.loads(saved(page, figure, "json", tmp_path).read_text())
    assert told["python"] == page.locator(f"[id='{figure}'] [data-python]").text_content()
    assert told["operation"]
    assert told["printed"]
    for array in told["arrays"].values():
        count = 1
        for side in array["shape"]:
            count *= side
        assert len(array["values"]) == count
