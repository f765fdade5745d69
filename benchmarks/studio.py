"""What the Studio costs where a person waits for it: in a headless Chromium, beside the budgets it was given.

    python -m benchmarks.studio [--quick] [--json] [--force] [--chromium FILE]

The server is a process of its own, started as `clearhead studio` starts it, and the browser is already open when the
link is printed, as a person's is.

- First paint and first live figure: from the moment the link is printed, until the start page shows its first pixels,
  and its first number that the server computed.
- Slider: the sharpness of chapter 3, moved step after step as soon as the last step is painted; from the event to the
  end of the frame that shows the new map.
- 144 maps: a random model of 12 layers of 12 heads on a text of 128 tokens, whose maps change their colour scale all at
  once; from the click to the end of that frame. Nothing is fetched in between.
- 1,000 tokens: a text of that many is given to Gemma 3 270M, loaded before; from the key press until every head and one
  head in full are drawn. Memory is the most that the server held above what it held before.
- JavaScript: every file of the build, gzipped, without KaTeX, which comes by itself where a formula is shown; and the
  most that one page fetches.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from benchmarks.machine import require_quiet

if TYPE_CHECKING:
    from playwright.sync_api import Page

FLAGS = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
)
HEADS, LAYERS, TOKENS = 12, 12, 128
LONG, MODEL = 1000, "gemma3-270m"
CHAPTERS = "1-recurrence 2-lookup 3-attention 4-heads 5-position 6-block 7-masks 8-scale check papers".split()
VIEWS = "attention predict lens ablate patch generate heads shapes".split()
PAGES = (
    "/",
    *(f"/learn/{slug}" for slug in CHAPTERS),
    *(f"/explore/clear-gpt/{view}" for view in VIEWS),
    *("/compare", "/cost", "/claims", "/claims/knife-edge", "/runs"),
)

FIRST_NUMBER = """
new MutationObserver((_, watcher) => {
  if (window.firstNumber === undefined && document.querySelector('main [data-value]')) {
    window.firstNumber = performance.now();
    watcher.disconnect();
  }
}).observe(document, { subtree: true, childList: true });
"""
AFTER_FRAME = """
const afterFrame = () => new Promise((done) => requestAnimationFrame(() => {
  const channel = new MessageChannel();
  channel.port1.onmessage = () => done(performance.now());
  channel.port2.postMessage(0);
}));
"""
SLIDER = f"""async (n) => {{
  {AFTER_FRAME}
  const figure = document.querySelector('#stepper');
  const input = [...figure.querySelectorAll('input[type=range]')].find((one) => one.max <= 10);
  const marks = figure.querySelector('.marks');
  const times = [];
  for (let i = 0; i < n; i++) {{
    const painted = new Promise((done) => {{
      const watcher = new MutationObserver(() => {{ watcher.disconnect(); afterFrame().then(done); }});
      watcher.observe(marks, {{ subtree: true, attributes: true, characterData: true, childList: true }});
    }});
    const from = performance.now();
    input.value = String(Number(input.min) + (Number(input.max) - Number(input.min)) * ((i % 30) + 1) / 32);
    input.dispatchEvent(new Event('input', {{ bubbles: true }}));
    times.push((await painted) - from);
  }}
  return times;
}}"""
MAPS = f"""async (n) => {{
  {AFTER_FRAME}
  const switches = [...document.querySelectorAll('input[role=switch]')];
  const input = switches.find((one) => one.labels[0].textContent.includes('Linear'));
  const times = [];
  for (let i = 0; i < n; i++) {{
    await afterFrame();
    const from = performance.now();
    input.click();
    times.push((await afterFrame()) - from);
    await new Promise((done) => setTimeout(done, 60));
  }}
  return times;
}}"""


@dataclass(frozen=True)
class Line:
    """One thing that was measured."""

    what: str
    value: float
    unit: str
    budget: float | None = None
    """The most it may be."""
    note: str = ""

    @property
    def within(self) -> bool | None:
        return None if self.budget is None else self.value <= self.budget


@dataclass(frozen=True)
class Server:
    """A Studio that runs, and when it said so."""

    process: subprocess.Popen[str]
    link: str
    said: float
    """When the link was printed, as `time.time` has it."""
    started_in: float

    @property
    def origin(self) -> str:
        return self.link.split("/?")[0]

    def memory(self, field: str) -> int:
        """Bytes, by a field of its /proc status."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
        raise RuntimeError(f"no {field}")

    def forget_peak(self) -> None:
        """From now on, the most it held is counted anew."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


@contextlib.contextmanager
def served(*arguments: str) -> Iterator[Server]:
    begun = time.time()
    process = subprocess.Popen(
        [sys.executable, "-m", "clearhead", "studio", "--port", "0", "--json", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        said = time.time()
        if not line:
            sys.exit("the Studio did not start; what it said stands above")
        yield Server(process, json.loads(line)["url"], said, said - begun)
    finally:
        process.terminate()
        process.wait()


def random_model(folder: Path) -> Path:
    """12 layers of 12 heads, narrow, with random weights; a token is a byte."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    import clearhead
    from clearhead.families import family_of
    from clearhead.model.transformer import Transformer

    family = "llama"
    sizes = {
        "vocab_size": 256,
        "hidden_size": 8 * HEADS,
        "intermediate_size": 64,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "max_position_embeddings": 2 * TOKENS,
    }
    torch.manual_seed(0)
    clearhead.save(Transformer(family_of({"model_type": family}, "here").read(sizes, "here")), folder, family=family)
    core = Tokenizer(
        models.BPE(vocab={x: i for i, x in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}, merges=[])
    )
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.save(str(folder / "tokenizer.json"))
    return folder


# ---- each thing that is measured


def opening(page: Page, server: Server) -> list[Line]:
    page.add_init_script(FIRST_NUMBER)
    page.goto(server.link, wait_until="load")
    end = time.monotonic() + 60
    while not page.evaluate("() => window.firstNumber !== undefined"):  # Playwright's own waiting is not let in
        page.wait_for_timeout(20)
        if time.monotonic() > end:
            sys.exit("the start page showed no number within a minute")
    paint, figure = page.evaluate(
        "() => [performance.getEntriesByName('first-contentful-paint')[0].startTime, window.firstNumber]"
        ".map((at) => performance.timeOrigin + at)"
    )
    return [
        Line("the link is printed", server.started_in, "s", note="after the start, most of it importing torch"),
        Line("first paint after the link", paint / 1000 - server.said, "s", 1.0),
        Line("first live figure after the link", figure / 1000 - server.said, "s", 2.0),
    ]


def slider(page: Page, server: Server, steps: int) -> list[Line]:
    page.goto(f"{server.origin}/learn/3-attention", wait_until="load")
    page.wait_for_selector("#stepper .marks [data-value]")
    page.evaluate(SLIDER, 5)
    times = page.evaluate(SLIDER, steps)
    worst = sorted(times)[int(0.95 * len(times))]
    return [Line("slider to repaint, p50", statistics.median(times), "ms", 60.0, f"95 % under {worst:.0f} ms")]


def maps(page: Page, server: Server, model: str, turns: int) -> list[Line]:
    text = ("The keys to the cabinet are on the table. " * 4)[:TOKENS]
    page.goto(f"{server.origin}/explore/{model}/attention?text={text}", wait_until="load")
    page.wait_for_selector(".grid canvas", timeout=60_000)
    page.wait_for_load_state("networkidle")
    page.evaluate(MAPS, 3)
    times = page.evaluate(MAPS, turns)
    what = f"{HEADS * LAYERS} maps of {TOKENS} x {TOKENS} repaint, p50"
    return [
        Line(what, statistics.median(times), "ms", 33.0, f"at most {max(times):.0f} ms; one head in full with them")
    ]


def long_text(page: Page, server: Server) -> list[Line]:
    from clearhead.claims.ingredients.sentences import SENTENCES

    page.goto(f"{server.origin}/explore/{MODEL}/attention?text=The+cat+sat", wait_until="load")
    page.wait_for_selector(".grid canvas", timeout=180_000)
    page.wait_for_load_state("networkidle")
    text = " ".join(SENTENCES * 20)
    tokens = page.evaluate(
        """async ([model, text]) => (await (await fetch('/api/v1/tokenize', {
          method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify({ model, text }),
        })).json()).tokens""",
        [MODEL, text[:20_000]],
    )
    text = text[: tokens[LONG - 1]["end"]]
    server.forget_peak()
    before = server.memory("VmRSS")
    box = page.locator("textarea").first
    box.fill(text)
    drawn: list[str] = []
    page.on("requestfinished", lambda request: drawn.append(request.url) if "/tensor/" in request.url else None)
    begun = time.perf_counter()
    box.press("Enter")
    # One tensor has the maps of all heads, the other a head in full.
    while len(drawn) < 2 and time.perf_counter() - begun < 300:
        page.wait_for_timeout(20)
    page.evaluate(f"async () => {{ {AFTER_FRAME} await afterFrame(); await afterFrame(); }}")
    seconds = time.perf_counter() - begun
    extra = max(0, server.memory("VmHWM") - before)
    return [
        Line(f"{LONG:,} tokens on {MODEL}, all heads", seconds, "s", 10.0),
        Line("extra memory of the server for it", extra / 1e9, "GB", 1.5),
    ]


def javascript(page: Page, server: Server) -> list[Line]:
    from clearhead.studio.settings import STATIC

    sizes = {
        file.name: len(gzip.compress(file.read_bytes(), 9))
        for file in STATIC.rglob("*.js")
        if not file.name.startswith("katex")
    }
    fetched: set[str] = set()
    page.on("response", lambda response: fetched.add(response.url.rsplit("/", 1)[-1].split("?")[0]))
    by_page: dict[str, int] = {}
    for path in PAGES:
        fetched.clear()
        page.goto(f"{server.origin}{path}", wait_until="load")
        page.wait_for_timeout(1200)
        by_page[path] = sum(size for name, size in sizes.items() if name in fetched)
    heaviest = max(by_page, key=lambda path: by_page[path])
    return [
        Line("JavaScript, the most a page fetches", by_page[heaviest] / 1000, "kB", 200.0, heaviest),
        Line("JavaScript, the start page", by_page["/"] / 1000, "kB"),
        Line("JavaScript, all pages together", sum(sizes.values()) / 1000, "kB", note=f"{len(sizes)} files"),
    ]


# ---- together


def measure(chromium: str, quick: bool) -> list[Line]:
    from playwright.sync_api import sync_playwright

    lines: list[Line] = []
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        model = random_model(Path(temporary) / "many-heads")
        browser = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        page = context.new_page()
        page.goto("about:blank")
        with served("--model", str(model)) as server:
            lines += opening(page, server)
            lines += slider(page, server, 20 if quick else 60)
            lines += maps(page, server, model.name, 10 if quick else 30)
            lines += javascript(context.new_page(), server)
            if not quick:
                lines += long_text(context.new_page(), server)
        browser.close()
    return lines


def table(lines: list[Line]) -> Table:
    drawn = Table("what", "measured", "budget", "within", "", box=None)
    for line in lines:
        digits = 0 if line.unit in ("ms", "kB") and line.value >= 20 else 2
        budget = "" if line.budget is None else f"{line.budget:g} {line.unit}"
        within = {True: "yes", False: "NO", None: ""}[line.within]
        drawn.add_row(line.what, f"{line.value:.{digits}f} {line.unit}", budget, within, line.note)
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repeats, and no Gemma")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--force", action="store_true", help="measure although others use the processors")
    names = ("chromium", "chromium-browser", "google-chrome")
    found = next(filter(None, map(shutil.which, names)), None)
    parser.add_argument("--chromium", default=found, metavar="FILE", help="the browser")
    options = parser.parse_args()
    if options.chromium is None:
        sys.exit("there is no Chromium: install it, or name it with --chromium")
    load = require_quiet(options.force)
    try:
        lines = measure(options.chromium, options.quick)
    except ImportError as problem:
        sys.exit(f'{problem}. Run: pip install "clearhead[studio,test]"')
    if options.json:
        told: list[dict[str, Any]] = [{**asdict(line), "within": line.within} for line in lines]
        print(json.dumps({"foreign_load": load, "processors": os.cpu_count(), "lines": told}, indent=1))
        return
    console = Console() if sys.stdout.isatty() else Console(width=140)
    console.print(f"{os.cpu_count()} processors, others use {load:.0%}; {options.chromium}")
    console.print(table(lines))


if __name__ == "__main__":
    main()
