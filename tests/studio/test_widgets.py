"""The figures in a notebook: what travels, what a reader without a kernel gets, and that they live in a browser."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Browser, Page

import clearhead
from clearhead.errors import ClearheadError, UsageError
from clearhead.lens.logit_lens import logit_lens
from clearhead.lens.seen import Seen
from clearhead.studio import widgets
from clearhead.studio.frames import unpack
from tests.studio.conftest import CHROMIUM
from tests.studio.notebook import Notebook

TEXT = "The cat sat on the mat"
IS_BUILT = (widgets.BUILT / "bundle.js").is_file()
AXE = Path(__file__).parents[2] / "frontend" / "node_modules" / "axe-core" / "axe.min.js"


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """As if the widgets were built: nothing here runs them."""
    for name, content in {
        "loader.js": "export default {}",
        "bundle.js": "export const draw = 1",
        "bundle.css": "p {}",
        "figures.json": '["attention.stepper", "attention.rows"]',
    }.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(widgets, "BUILT", tmp_path)
    from clearhead.studio.widgets import kernel

    kernel._code.cache_clear()
    yield tmp_path
    kernel._code.cache_clear()


@pytest.fixture(scope="module")
def seen() -> Seen:
    return clearhead.look(clearhead.load("clear-gpt"), TEXT)


class Line:
    """What a widget sends."""

    def __init__(self, widget: Any) -> None:
        self.widget = widget
        self.sent: list[tuple[dict[str, Any], list[bytes]]] = []
        widget.send = lambda content, buffers=(): self.sent.append((content, list(buffers)))

    def ask(self, op: str, args: dict[str, Any], seq: int = 1) -> tuple[dict[str, Any], dict[str, Any]]:
        self.widget._hear(self.widget, {"kind": "ask", "id": "a", "seq": seq, "op": op, "args": args}, [])
        content, buffers = self.sent[-1]
        assert content == {"kind": "frame"}
        return unpack(buffers[0])


def test_a_question_gets_the_frame_that_the_studio_would_send(stub: Path) -> None:
    line = Line(widgets.figure("attention.stepper", beta=1.4, mask="causal"))
    assert line.widget.state == {"beta": "1.4", "mask": "causal"}
    told, arrays = line.ask("attention.stepper", {"beta": 1.4})
    assert (told["id"], told["seq"], told["last"]) == ("a", 1, True)
    assert arrays["softmax"].shape == (10, 10)
    assert arrays["softmax"].sum(-1) == pytest.approx(1, abs=1e-5)


def test_what_is_refused_is_told(stub: Path) -> None:
    line = Line(widgets.figure("attention.stepper"))
    told, _ = line.ask("attention.stepper", {"beta": -3})
    assert "beta" in told["error"]
    told, _ = line.ask("no.such", {})
    assert "no.such" in told["error"]
    for broken in ({}, {"kind": "ask", "id": "a", "seq": -1, "op": "attention.stepper", "args": {}}, "text", None):
        before = len(line.sent)
        line.widget._hear(line.widget, broken, [])
        assert len(line.sent) == before


def test_the_code_is_sent_once_asked_for(stub: Path) -> None:
    line = Line(widgets.figure("attention.rows"))
    line.widget._hear(line.widget, {"kind": "bundle"}, [])
    assert line.sent == [({"kind": "bundle"}, [b"export const draw = 1", b"p {}"])]
    assert len(line.widget._bundle) == 16


def test_unknown_names_and_values_are_refused(stub: Path) -> None:
    with pytest.raises(UsageError, match=r"perhaps attention\.stepper"):
        widgets.figure("attention.steper")
    with pytest.raises(UsageError, match="beta="):
        widgets.figure("attention.stepper", beta={"a": 1})
    with pytest.raises(UsageError, match="no result"):
        widgets.view("text")  # type: ignore[arg-type]
    assert [widgets.written("x", value) for value in (True, 3, "a", [1, 2.5], ())] == ["1", "3", "a", "1,2.5", ""]


def test_without_the_build_or_the_package_it_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stub: Path
) -> None:
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "clearhead.studio.widgets.kernel", raising=False)
    with pytest.raises(ClearheadError, match=r"clearhead\[notebook\]"):
        widgets.figure("attention.stepper")
    monkeypatch.setattr(widgets, "BUILT", tmp_path / "nowhere")
    with pytest.raises(ClearheadError, match="not built"):
        widgets.figure("attention.stepper")


def test_importing_the_module_needs_no_anywidget() -> None:
    heavy = "{'anywidget', 'ipywidgets', 'torch'}"
    code = f"import sys, clearhead.studio.widgets; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("name", ["grid", "map", "links", "lens", "shapes"])
def test_a_view_is_told_the_numbers_of_its_result(stub: Path, seen: Seen, name: str) -> None:
    model = clearhead.load("clear-gpt")
    result: Any = {
        "grid": seen.grid,
        "map": lambda: seen.map(head=2),
        "links": seen.links,
        "lens": lambda: logit_lens(model, TEXT),
        "shapes": lambda: clearhead.look(model, TEXT, "layers.*.mixer.z"),
    }[name]()
    widget = widgets.view(result)
    told, arrays = Line(widget).ask("view", {})
    n = len(seen.tokens[0])
    pattern_HTS = seen.pattern("layers.0.mixer.pattern")
    if name in ("grid", "links"):
        assert arrays["maps"].shape == (4, 4, n, n)
        assert torch.equal(torch.tensor(arrays["maps"][0]), pattern_HTS)
        assert [layer["triangle"] for layer in told["data"]["layers"]] == [True] * 4
    elif name == "map":
        assert torch.equal(torch.tensor(arrays["values"]), pattern_HTS[2])
    elif name == "lens":
        assert torch.equal(torch.tensor(arrays["values"]), result.values)
        assert told["data"]["words"] == result.cells
    else:
        assert told["data"]["shapes"][0] == ["layers.0.mixer.z", "B H T K", f"1 × 4 × {n} × 64", "float32"]
    data, _ = widget._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/html"] == result._repr_mimebundle_()["text/html"], "without a kernel: the page of the lens"


def test_a_figure_without_a_kernel_is_a_picture_and_its_code(stub: Path, tmp_path: Path) -> None:
    widget = widgets.figure("attention.stepper")
    data, _ = widget._repr_mimebundle_()
    assert "data:image/svg+xml;base64," in data["text/html"]
    assert "import" in data["text/html"]
    assert "<script" not in data["text/html"]
    for ending in ("html", "svg", "png", "json"):
        assert widget.save(tmp_path / f"figure.{ending}").stat().st_size > 500
    numbers = json.loads((tmp_path / "figure.json").read_text())
    assert len(numbers["values"]) == 10
    assert widgets.figure("attention.rows").still().html()


def test_a_long_computation_streams_and_is_stopped(stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clearhead.studio.operations import Answer

    line = Line(widgets.figure("attention.stepper"))
    go, closed = threading.Semaphore(0), threading.Event()

    def answers() -> Iterator[Answer]:
        try:
            for i in range(100):
                go.acquire(timeout=5)
                yield Answer(data={"i": i})
        finally:
            closed.set()

    monkeypatch.setattr(line.widget, "answer", lambda op, args: answers())
    line.widget._hear(line.widget, {"kind": "ask", "id": "a", "seq": 1, "op": "x", "args": {}}, [])
    go.release(2)
    line.widget._hear(line.widget, {"kind": "cancel", "id": "a"}, [])
    go.release(2)
    assert closed.wait(5)
    assert len(line.sent) <= 4


# ---- in a browser


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    page = chromium.new_page(viewport={"width": 900, "height": 900}, reduced_motion="reduce")
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: complaints.append(request.url) if request.url.startswith("http") else None)
    yield page
    page.close()
    assert complaints == []


live = pytest.mark.skipif(
    not IS_BUILT or CHROMIUM is None, reason="the widgets are not built (npm run build), or there is no Chromium"
)


def weight(beta: float) -> float:
    from clearhead.studio.operations import Answer, ask

    answer = ask(None, "attention.stepper", {"beta": beta})  # type: ignore[arg-type]
    assert isinstance(answer, Answer)
    return float(answer.arrays["softmax"][7, 1])


@live
@pytest.mark.slow
def test_a_figure_lives_in_a_notebook(page: Page) -> None:
    widget = widgets.figure("attention.stepper", step="softmax", beta=1.4)
    notebook = Notebook(page, widget)
    cell = page.locator("[data-cell='7-1']").first
    assert float(cell.get_attribute("data-value") or "nan") == pytest.approx(weight(1.4), abs=1e-6)
    # By keyboard alone, as a slider is moved where a notebook would take the arrows for itself.
    slider = page.locator("input[type=range]").first
    slider.focus()
    page.keyboard.press("ArrowRight")
    notebook.settle()
    assert widget.state["beta"] == "1.45"
    assert float(cell.get_attribute("data-value") or "nan") == pytest.approx(weight(1.45), abs=1e-6)
    assert slider.get_attribute("data-lm-suppress-shortcuts") is not None
    page.add_script_tag(path=str(AXE))
    rules = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]
    found = page.evaluate("rules => axe.run({ runOnly: rules })", rules)
    assert [one["id"] for one in found["violations"]] == []
    page.locator(".save summary").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="HTML", exact=True).click()
    saved = Path(download.value.path()).read_text()
    assert f'data-value="{cell.get_attribute("data-value")}"' in saved
    assert "--ramp-ink" in saved
    assert "<script" not in saved
    page.evaluate("() => window.end?.()")


@live
@pytest.mark.slow
@pytest.mark.parametrize("name", ["grid", "map", "links", "lens"])
def test_a_view_lives_in_a_notebook(page: Page, seen: Seen, name: str) -> None:
    made = {"grid": seen.grid, "map": seen.map, "links": seen.links}
    result: Any = logit_lens(clearhead.load("clear-gpt"), TEXT) if name == "lens" else made[name]()
    Notebook(page, widgets.view(result))
    assert page.locator("figcaption").inner_text() == result.title
    if name == "map":
        shown = float(page.locator("[data-cell='3-1']").get_attribute("data-value") or "nan")
        assert shown == pytest.approx(float(result.pattern_TS[3, 1]), abs=1e-6)
    if name == "lens":
        shown = float(page.locator("tbody tr").nth(2).locator("button").nth(3).get_attribute("data-value") or "nan")
        assert shown == pytest.approx(float(result.values[2, 3]), abs=1e-6)
    assert page.evaluate("() => document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@live
def test_every_figure_of_the_lesson_is_known() -> None:
    names = widgets.figures()
    assert "attention.stepper" in names
    assert len(names) == len(set(names))
    assert importlib.util.find_spec("anywidget") is not None
