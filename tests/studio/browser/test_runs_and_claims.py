"""Runs of training and reports of claims, in folders that the command line named: what they hold stands on the page,
and the page follows a run while it is written.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import torch
from playwright.sync_api import Browser

import clearhead
from clearhead.training.recipes.attention_only_2l import attention_only_2l
from clearhead.training.settings import plain
from clearhead.training.showing import Shown
from tests.studio.browser.conftest import Watched
from tests.studio.browser.test_numbers import SHOWN
from tests.studio.snippets import printed_by

CLAIM = "mixture"


def write(folder: Path, steps: range) -> None:
    """Lines as a run writes them."""
    with (folder / "metrics.jsonl").open("a") as file:
        for step in steps:
            file.write(json.dumps({"step": step, "loss": 6 - step / 50, "lr": 0.001, "norm": 1.0}) + "\n")
            if step % 40 == 0:
                file.write(json.dumps({"step": step, "held_out_loss": 6.5 - step / 60}) + "\n")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("folders")
    runs, claims = root / "runs", root / "claims"
    for name in ("done", "on"):
        folder = runs / name
        folder.mkdir(parents=True)
        write(folder, range(10, 110, 10))
        for number in range(2):
            clearhead.save(clearhead.load(f"clear-2l@{15 * number:04}"), folder / "snapshots" / f"{number:04}")
        config = plain(attention_only_2l())
        config["every"]["snapshots"], config["run"]["steps"] = [0, 100], 100 if name == "done" else 200
        clearhead.save(clearhead.load("clear-2l"), folder / "step-000100")
        torch.save({"config": config}, folder / "step-000100" / "training.pt")
        Shown("given: <b>&amp;\u202e\nwritten: words", b"", b"<svg xmlns='http://www.w3.org/2000/svg'/>").save(
            folder, 100
        )
    (runs / "done" / "report.json").write_text(json.dumps({"held_out_loss": 5.2, "files": 3, "config": config}))
    (claims / CLAIM).mkdir(parents=True)
    result = clearhead.claim(CLAIM, quick=True, progress=False)
    (claims / CLAIM / "result.json").write_text(json.dumps(result.to_json()))
    (claims / CLAIM / "figure.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>")
    return {"runs": runs, "claims": claims}


@pytest.fixture(scope="module")
def open_page(folders: dict[str, Path], chromium: Browser) -> Iterator[Callable[..., Watched]]:
    """Pages of a Studio that was started with both folders; what went wrong on one fails the test."""
    flags = [part for name, folder in folders.items() for part in (f"--{name}", str(folder))]
    process = subprocess.Popen(
        [sys.executable, "-m", "clearhead", "studio", "--port", "0", "--json", *flags],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert process.stdout is not None
    link = json.loads(process.stdout.readline())["url"]
    parts = urlsplit(link)
    made: list[Watched] = []

    def make(path: str, **settings: object) -> Watched:
        context = chromium.new_context(**{"viewport": {"width": 1280, "height": 900}, **settings})
        watched = Watched(context.new_page(), f"{parts.scheme}://{parts.netloc}")
        watched.page.on("console", watched.on_console)
        watched.page.on("pageerror", lambda error: watched.complaints.append(f"error: {error}"))
        watched.page.on("request", watched.on_request)
        watched.page.goto(link)
        watched.page.goto(watched.origin + path)
        made.append(watched)
        return watched

    yield make
    for one in made:
        one.page.context.close()
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 0
    assert [complaint for one in made for complaint in one.complaints] == []


@pytest.mark.parametrize(("path", "n"), [("/runs/done", 3), (f"/claims/{CLAIM}", 1), ("/claims/knife-edge", 1)])
def test_the_numbers_are_those_that_the_code_prints(open_page: Callable[..., Watched], path: str, n: int) -> None:
    watched = open_page(path)
    watched.settle()
    checked = 0
    for figure in watched.page.locator("main figure:has(pre[data-python])").all():
        python = figure.locator("pre[data-python]").text_content() or ""
        printed = printed_by(python) if python else []
        if not printed or figure.get_attribute("id") == "sample":  # whose numbers are words of the model
            continue
        shown = {index: value for index, value, _ in figure.evaluate(SHOWN)}
        assert [shown.get(index) for index in range(len(printed))] == pytest.approx(printed, rel=1e-6, abs=1e-6)
        checked += 1
    assert checked == n


def test_a_page_follows_its_run(open_page: Callable[..., Watched], folders: dict[str, Path]) -> None:
    page = open_page("/runs/on").page
    state = page.locator("main [role=status]").first
    page.wait_for_selector("text=It is at step 100")
    assert "follows it" in state.inner_text()
    write(folders["runs"] / "on", range(110, 160, 10))
    page.wait_for_selector("text=It is at step 150", timeout=10_000)
    assert page.locator("#curves .says").inner_text().startswith("At step 150 the training loss is 3.000")
    (folders["runs"] / "on" / "report.json").write_text("{}")
    page.wait_for_selector("text=It has finished, after 150 steps", timeout=10_000)


def test_a_sample_is_text_and_a_drawing_a_picture(open_page: Callable[..., Watched]) -> None:
    page = open_page("/runs/done").page
    sample = page.locator("#sample pre").first
    sample.wait_for()
    assert sample.inner_text().startswith("given: <b>&amp;")
    assert page.locator("#sample b").count() == 0 and page.locator("#sample img").count() == 1


def test_a_claim_is_measured_from_its_page_and_can_be_stopped(open_page: Callable[..., Watched]) -> None:
    page = open_page("/claims/learned-keys").page
    page.get_by_role("button", name="Measure it here, quickly").click()
    page.get_by_role("button", name="Stop").click()
    page.get_by_role("button", name="Measure it here, quickly").wait_for()
    time.sleep(1)  # the process has ended
    page.get_by_role("button", name="Measure it here, quickly").click()
    page.wait_for_selector("#report .says >> text=holds", timeout=90_000)
    assert page.locator("#report img").count() == 1
    assert page.locator("#report [data-printed]").count() > 3


@pytest.mark.parametrize("path", ["/runs", "/runs/done", f"/claims/{CLAIM}", "/claims?show=holds&find=S14"])
def test_a_phone_shows_them_without_sideways_scroll(open_page: Callable[..., Watched], path: str) -> None:
    watched = open_page(path, viewport={"width": 390, "height": 844})
    watched.settle()
    assert watched.page.evaluate("() => document.documentElement.scrollWidth <= document.documentElement.clientWidth")
