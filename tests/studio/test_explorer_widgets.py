"""The explorer in a notebook: what its messages bring is the library's, of a model as it is, and it lives in a page."""

from __future__ import annotations

import gc
import importlib.util
import json
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from playwright.sync_api import Browser, Page

import clearhead
from clearhead.errors import ClearheadError, UsageError
from clearhead.lens import edit, zero
from clearhead.studio import widgets
from clearhead.studio.frames import unpack
from clearhead.studio.operations import Answer
from clearhead.studio.widgets import explored
from clearhead.studio.widgets.explorer import beside
from clearhead.studio.widgets.kernel import studio
from tests import tiny
from tests.studio.conftest import CHROMIUM
from tests.studio.notebook import Notebook
from tests.studio.snippets import printed_by

TEXT = "The cat sat on the mat because it was tired"
FRONTEND = Path(__file__).parents[2] / "frontend"
ADDRESS = "layers.1.mixer.pattern"


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """As if the widgets were built: nothing here runs them."""
    from clearhead.studio.widgets import kernel

    for name, content in {"loader.js": "export default {}", "bundle.js": "", "bundle.css": ""}.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(widgets, "BUILT", tmp_path)
    kernel._code.cache_clear()
    yield tmp_path
    kernel._code.cache_clear()


class Line:
    """What a widget sends, question by question."""

    def __init__(self, widget: Any) -> None:
        self.widget, self.asked = widget, 0
        self.sent: list[tuple[dict[str, Any], dict[str, Any]]] = []
        self.last = threading.Event()
        widget.send = self._send

    def _send(self, content: Any, buffers: Any = ()) -> None:
        told, arrays = unpack(bytes(buffers[0]))
        self.sent.append((told, arrays))
        if told["last"]:
            self.last.set()

    def ask(self, op: str, **args: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """The last answer that says something."""
        self.asked += 1
        self.sent, self.last = [], threading.Event()
        content = {"kind": "ask", "id": "a", "seq": self.asked, "op": op, "args": args}
        self.widget._hear(self.widget, content, [])
        assert self.last.wait(30)
        return next(one for one in reversed(self.sent) if one[0].get("error") or one[0].get("data"))


# ---- what is told


def test_a_run_and_its_parts_are_what_look_sees(stub: Path) -> None:
    line = Line(widgets.explore("clear-gpt", TEXT, "attention", l=1))
    assert line.widget.figure == "explore.attention"
    assert line.widget.state == {"model": "clear-gpt", "text": TEXT, "l": "1"}
    run, _ = line.ask("notebook.run", model="clear-gpt", text=TEXT, capture=["layers.*.mixer.pattern"])
    seen = clearhead.look(clearhead.load("clear-gpt"), TEXT, "layers.*.mixer.pattern")
    assert [token["text"] for token in run["data"]["tokens"]] == seen.labels()
    told, arrays = line.ask("notebook.part", run=run["data"]["run"], name=ADDRESS, heads="2", **{"as": "f32"})
    assert told["data"]["code"] == "f32"
    assert np.allclose(arrays["part"][0], seen.pattern(ADDRESS)[2], rtol=0, atol=1e-6)
    _, small = line.ask(
        "notebook.part", run=run["data"]["run"], name="layers.*.mixer.pattern", pool=4, **{"as": "u8sqrt"}
    )
    n = -(-len(run["data"]["tokens"]) // 4)
    assert small["part"].shape == (4, 4, n, n) and small["part"].dtype == np.uint8
    cell, _ = line.ask("explore.cell", run=run["data"]["run"], at="layers.1.mixer", head=2, query=5, key=3)
    assert cell["data"]["weight"] == pytest.approx(float(seen.pattern(ADDRESS)[2, 5, 3]), abs=1e-6)
    models, _ = line.ask("notebook.models")
    assert "clear-2l" in [one["id"] for one in models["data"]["models"]]


def test_what_is_refused_is_told_and_the_next_question_is_answered(stub: Path) -> None:
    line = Line(widgets.explore("clear-gpt", TEXT))
    for op, args, said in (
        ("notebook.run", {"model": "clear-gpt", "path": "/etc/passwd"}, "path"),
        ("notebook.run", {"model": "../clear-gpt", "text": TEXT}, "no model"),
        ("notebook.run", {"model": "clear-gpt", "text": ""}, "empty"),
        ("notebook.run", {"model": "clear-gpt", "text": "a" * 100_001}, "100000"),
        ("notebook.part", {"run": "0" * 64, "name": ADDRESS}, "no longer kept"),
        ("notebook.part", {"run": "x", "name": ADDRESS}, "run"),
        ("notebook.part", {"run": "0" * 64, "name": ADDRESS, "pool": 0}, "pool"),
        ("notebook.away", {}, "no operation"),
    ):
        told, _ = line.ask(op, **args)
        assert said in told["error"], (op, told)
    told, _ = line.ask("notebook.run", model="clear-gpt", text=TEXT)
    assert told["data"]["model"] == "clear-gpt"


def test_work_that_nobody_waits_for_is_told_so() -> None:
    ended = threading.Event()

    def work(event: threading.Event) -> Answer:
        assert event.wait(10)
        ended.set()
        return Answer()

    steps = beside(work)
    assert next(steps) is None
    steps.close()  # type: ignore[attr-defined]
    assert ended.wait(10)
    with pytest.raises(ClearheadError, match="it broke"):
        list(beside(lambda _: (_ for _ in ()).throw(ClearheadError("it broke"))))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_defect_is_told_to_the_page_and_to_python(stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = Line(widgets.explore("clear-gpt", TEXT))
    monkeypatch.setattr(studio().runs, "make", lambda *args, **how: 1 // 0)
    told, _ = line.ask("notebook.run", model="clear-gpt", text=TEXT)
    assert told["error"].startswith("ZeroDivisionError")


# ---- a model of the notebook's own


def test_a_model_is_looked_at_as_it_is(stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = clearhead.load("clear-gpt")
    with torch.no_grad():
        model.embed.tokens.weight.mul_(1.5)
    widget = widgets.explore(model, TEXT, "predict")
    line, id = Line(widget), widget.state["model"]
    assert widgets.compare(model, "clear-gpt", TEXT).state["a"] == id, "the same model has the same name"
    run, _ = line.ask("notebook.run", model=id, text=TEXT)
    told, _ = line.ask("explore.predict", run=run["data"]["run"])
    assert told["data"]["rows"][0]["p"] == pytest.approx(first(model), rel=1e-5)
    assert told["data"]["rows"][0]["p"] != pytest.approx(first(clearhead.load("clear-gpt")), rel=1e-3)
    assert "clearhead.load" not in told["python"], "the file has other weights"
    monkeypatch.setattr(clearhead, "mine", model, raising=False)
    printed = printed_by("import clearhead\n\nmodel = clearhead.mine\n" + told["python"])
    assert told["printed"] == pytest.approx(printed, rel=1e-6)


def test_numbers_of_weights_that_were_trained_on_are_never_shown(stub: Path) -> None:
    model = clearhead.load("clear-gpt")
    line = Line(widgets.explore(model, TEXT))
    id = line.widget.state["model"]
    before, _ = line.ask("notebook.run", model=id, text=TEXT)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    ids = torch.tensor([model.tokenizer.encode(TEXT)])
    model(ids).square().mean().backward()
    optimizer.step()
    told, _ = line.ask("explore.predict", run=before["data"]["run"])
    assert "no longer kept" in told["error"]
    after, _ = line.ask("notebook.run", model=id, text=TEXT)
    assert after["data"]["run"] != before["data"]["run"]
    told, _ = line.ask("explore.predict", run=after["data"]["run"])
    assert told["data"]["rows"][0]["p"] == pytest.approx(first(model), rel=1e-5)


def test_a_model_lives_as_long_as_the_notebook_holds_it(stub: Path) -> None:
    model = clearhead.load("clear-gpt")
    held, id = weakref.ref(model), studio().models.offer(model)
    assert studio().models.get(id) is model
    del model
    gc.collect()
    assert held() is None
    with pytest.raises(UsageError, match="no model"):
        studio().models.get(id)
    other = clearhead.load("clear-gpt")
    assert studio().models.offer(other) != id, "what is kept of one is never told of the next"


def test_a_folder_is_opened_by_its_path(stub: Path, tmp_path: Path) -> None:
    folder = tmp_path / "my model"
    tiny.make("gemma3_text").save_pretrained(folder)
    widget = widgets.explore(str(folder), "5 9 3 7", "attention")
    assert widget.state["model"] == "my-model"
    assert widgets.explore(str(folder)).state["model"] == "my-model"
    told, _ = Line(widget).ask("notebook.run", model="my-model", ids=[5, 9, 3, 7])
    assert [token["id"] for token in told["data"]["tokens"]] == [5, 9, 3, 7]


def test_a_model_in_training_is_refused(stub: Path) -> None:
    with pytest.raises(ClearheadError, match=r"model\.eval\(\)"):
        widgets.explore(clearhead.load("clear-gpt").train(), TEXT)


def first(model: Any) -> float:
    """The probability of the likeliest next token."""
    ids = torch.tensor([model.tokenizer.encode(TEXT)])
    with torch.no_grad():
        return float(model(ids)[0, -1].softmax(-1).max())


# ---- arguments


def test_python_and_the_pages_know_the_same_views() -> None:
    index = (FRONTEND / "src" / "pages" / "explore" / "views" / "index.ts").read_text()
    assert re.findall(r"slug: '(\w+)'", index) == list(widgets.VIEWS) == list(explored.DRAWN)


def test_what_is_not_there_is_refused(stub: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="perhaps lens"):
        widgets.explore("clear-gpt", TEXT, "lense")
    with pytest.raises(UsageError, match="n="):
        widgets.explore("clear-gpt", TEXT, "lens", n={})
    with pytest.raises(UsageError, match=r"'3\.mpl' names nothing"):
        widgets.compare("clear-gpt", "clear-gpt", TEXT, off=("3.1", "2.1~, 3.mpl"))
    with pytest.raises(ClearheadError, match="no file"):
        widgets.explore("clear-vit", picture=tmp_path / "none.png")
    with pytest.raises(ClearheadError, match=r"none\.wav can't be read"):
        widgets.explore("clear-speech", sound=tmp_path / "none.wav")


def test_a_picture_is_given_by_file_as_it_is_or_by_name(stub: Path, tmp_path: Path) -> None:
    picture = Image.fromarray(np.arange(28 * 28, dtype=np.uint8).reshape(28, 28) % 255)
    picture.save(tmp_path / "picture.png")
    names = [
        widgets.explore("clear-vit", picture=one).state["picture"]
        for one in (picture, tmp_path / "picture.png", np.asarray(picture))
    ]
    assert len(set(names)) == 1
    assert np.array_equal(np.asarray(studio().runs.uploads.picture(names[0]).convert("L")), np.asarray(picture))
    told, _ = Line(widgets.explore("clear-vit")).ask("notebook.run", model="clear-vit", picture=names[0])
    assert told["data"]["picture"] == names[0]
    assert widgets.explore("clear-vit", picture="bag").state["picture"] == "bag"
    assert widgets.explore("clear-speech", sound="365, spoken").state["sound"] == "365, spoken"


def test_a_notebook_needs_no_server() -> None:
    """The extra `notebook` installs neither FastAPI nor uvicorn."""
    code = (
        "import sys\nfor name in ('fastapi', 'starlette', 'uvicorn', 'websockets'): sys.modules[name] = None\n"
        "import clearhead.studio.widgets.explorer, clearhead.studio.widgets.kernel as kernel\nkernel.studio()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- without a kernel


PATCHED = {"patch": {"other": TEXT.replace("cat", "dog")}}


@pytest.mark.parametrize("view", [view for view in widgets.VIEWS if view not in ("picture", "experts", "state")])
def test_without_a_kernel_it_is_a_picture_and_its_code(stub: Path, view: str) -> None:
    widget = widgets.explore("clear-gpt", TEXT, view, **PATCHED.get(view, {}))
    data, _ = widget._repr_mimebundle_()
    assert "data:image/svg+xml;base64," in data["text/html"]
    assert "clearhead.load(&#x27;clear-gpt&#x27;)" in data["text/html"]
    assert "<script" not in data["text/html"]


def test_what_is_drawn_without_a_kernel_is_what_look_sees(stub: Path, tmp_path: Path) -> None:
    widget = widgets.explore("clear-gpt", TEXT, "attention", l=1, h=2)
    numbers = json.loads(widget.save(tmp_path / "map.json").read_text())
    seen = clearhead.look(clearhead.load("clear-gpt"), TEXT, ADDRESS)
    (layer,) = numbers["layers"]
    assert np.allclose(layer["pattern"][0], seen.pattern(ADDRESS)[2], atol=1e-6)
    both = widgets.compare("clear-2l", "clear-2l", TEXT, off=("", "1.attn"))
    costs = json.loads(both.save(tmp_path / "b.json").read_text())
    model = clearhead.load("clear-2l")
    ids = torch.tensor(model.tokenizer.encode(TEXT))
    for side, edits in enumerate(({}, {"layers.1.mixer.out": zero})):
        log_probs = edit(model, TEXT, edits)[0, :-1].log_softmax(-1)
        total = -float(log_probs.gather(1, ids[1:, None]).sum())
        assert sum(row[side] for row in costs["values"]) == pytest.approx(total, abs=1e-3)


@pytest.mark.parametrize(("family", "view"), [("mixtral", "experts"), ("mamba", "state"), (None, "picture")])
def test_other_models_are_drawn_too(stub: Path, tmp_path: Path, family: str | None, view: str) -> None:
    if family is None:
        widget = widgets.explore("clear-vit", view=view)
    else:
        tiny.make(family).save_pretrained(tmp_path / family)
        widget = widgets.explore(str(tmp_path / family), "5 9 3 7", view)
    assert "data:image/svg+xml;base64," in widget._repr_mimebundle_()[0]["text/html"]


def test_nothing_large_is_run_unasked(stub: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explored, "SMALL", 1000)
    monkeypatch.setattr(studio().models, "_loaded", type(studio().models._loaded)())
    assert widgets.explore("clear-gpt", TEXT, "lens").still(quick=True).drawn is None
    assert not studio().models.holds("clear-gpt")
    assert widgets.explore("clear-gpt", TEXT, "lens").still().drawn is not None
    assert widgets.explore("clear-gpt", TEXT, "ablate").still().drawn is None, "a sweep is never done unasked"
    assert widgets.explore("clear-gpt", "so " * 100, "lens").still().drawn is None, "too long to be drawn"


# ---- in a browser

live = pytest.mark.skipif(
    not (widgets.BUILT / "bundle.js").is_file() or CHROMIUM is None,
    reason="the widgets are not built (npm run build), or there is no Chromium",
)
AXE = FRONTEND / "node_modules" / "axe-core" / "axe.min.js"
SHOWN = """figure => [...figure.querySelectorAll('[data-printed]')].map(
  one => [Number(one.dataset.printed), Number(one.dataset.value)])"""


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


def look_over(page: Page) -> None:
    """What every widget has to be: as wide as its cell, and readable by everybody."""
    assert page.evaluate("() => document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    page.add_script_tag(path=str(AXE))
    rules = ["wcag2a", "wcag2aa", "wcag21aa", "wcag22aa", "best-practice"]
    found = page.evaluate("rules => axe.run({ runOnly: rules })", rules)
    assert [(one["id"], one["nodes"][0]["html"][:200]) for one in found["violations"]] == []
    assert page.locator("a[href^='/']").count() == 0, "a link to a page of the Studio leads nowhere here"


def checked(page: Page) -> int:
    """How many figures show what their own Python prints."""
    n = 0
    for figure in page.locator("figure:has(pre[data-python])").all():
        python = figure.locator("pre[data-python]").text_content() or ""
        shown = dict(figure.evaluate(SHOWN))
        if python.strip() and shown:
            printed = printed_by(python)
            assert shown == pytest.approx({i: printed[int(i)] for i in shown}, rel=1e-6, abs=1e-6)
            n += 1
    return n


@live
@pytest.mark.slow
@pytest.mark.parametrize("view", [*(view for view in widgets.VIEWS if view not in ("experts", "state")), "compare"])
def test_a_view_lives_in_a_notebook(page: Page, view: str) -> None:
    if view == "compare":
        widget = widgets.compare("clear-gpt", "clear-gpt", TEXT, off=("", "3.mlp"))
    elif view == "picture":
        widget = widgets.explore("clear-vit", view=view)
    else:
        widget = widgets.explore("clear-gpt", TEXT, view, **PATCHED.get(view, {}))
    notebook = Notebook(page, widget)
    if view == "generate":
        page.get_by_role("button", name="Write").click()
    for _ in range(40):
        notebook.settle()
        if page.locator("figure pre[data-python]:not(:empty)").count():
            break
    assert checked(page) > 0
    look_over(page)
    page.evaluate("() => window.end?.()")


@live
@pytest.mark.slow
@pytest.mark.parametrize(("family", "view"), [("mixtral", "experts"), ("mamba", "state")])
def test_a_view_of_another_family_lives_in_a_notebook(page: Page, tmp_path: Path, family: str, view: str) -> None:
    tiny.make(family).save_pretrained(tmp_path / f"own-{family}")
    Notebook(page, widgets.explore(str(tmp_path / f"own-{family}"), "5 9 3 7 2 8", view))
    assert checked(page) > 0
    look_over(page)


@live
@pytest.mark.slow
def test_another_text_another_head_and_another_view(page: Page) -> None:
    widget = widgets.explore("clear-gpt", TEXT)
    notebook = Notebook(page, widget)
    page.get_by_label("Text", exact=True).fill("The dog ran to the dog")
    page.keyboard.press("Enter")
    notebook.settle()
    assert widget.state["text"] == "The dog ran to the dog"
    page.get_by_label("Layer", exact=True).select_option("2")
    page.get_by_label("Head", exact=True).select_option("1")
    notebook.settle()
    assert (widget.state["l"], widget.state["h"]) == ("2", "1")
    address = "layers.2.mixer.pattern"
    pattern_TS = clearhead.look(clearhead.load("clear-gpt"), "The dog ran to the dog", address).pattern(address)[1]
    shown = page.locator("figure [data-printed='0']").first.get_attribute("data-value")
    assert float(shown or "nan") == pytest.approx(float(pattern_TS[-1].max()), abs=1e-6)
    # By keyboard alone.
    page.get_by_role("tab", name="Attention").focus()
    page.keyboard.press("ArrowRight")
    notebook.settle()
    assert widget.state["view"] == "predict"
    assert page.get_by_role("tab", name="Next token").get_attribute("aria-selected") == "true"
    assert checked(page) > 0
    # And what Python sets is shown.
    page.evaluate("state => window.take(state)", {**widget.state, "view": "lens", "lens.n": "4"})
    notebook.settle()
    assert page.locator("table thead th").count() == 5
    look_over(page)


@live
@pytest.mark.slow
def test_a_view_that_a_model_has_not_says_which_it_has(page: Page) -> None:
    Notebook(page, widgets.explore("clear-gpt", TEXT, "experts"))
    said = page.locator(".explorer").inner_text()
    assert "clear-gpt has no experts to choose from" in said and "“attention”" in said
    assert importlib.util.find_spec("anywidget") is not None
