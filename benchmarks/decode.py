"""Decoding, reading prompts, loading and memory beside peers, in one run, taking turns.

    python -m benchmarks.decode [--quick] [--case NAME ...] [--json] [--force] [--threads N]

Gemma 3 270M from its Q4_K_M file beside llama.cpp, in bfloat16 beside llama.cpp (from a GGUF file that is written from
the unpacked weights) and `transformers`, in float32 beside `transformers`; a random GPT-2 of 124M in float32 and 8 bits
beside CTranslate2, and beside `transformers`. Greedy tokens behind prompts of 64, for 1 row and for 8, where no token
ends a text; then prompts alone. Each side runs in processes of its own, and a peer that is not installed is left out.

Times are medians. Tokens a second count the steps after the first token, whatever is done once for a text included. The
limit is the best streaming read of as many bytes as a step reads of the weights, tried before each turn of each side.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from rich.console import Console

from benchmarks.decode_limit import Memory
from benchmarks.decode_show import load_table, ratio_table, speed_table
from benchmarks.machine import require_quiet
from benchmarks.worker import NotInstalledError, Worker
from clearhead.errors import ClearheadError

OURS = "clearhead"
DTYPES = ("float32", "bfloat16")
N_PROMPT = 64
ROWS = (1, 8)
PATIENCE = 10
"""Who takes so many seconds for one turn is asked no more than twice."""


@dataclass(frozen=True)
class Contender:
    """A library, how it keeps the model, and what is asked of it."""

    name: str
    library: str
    source: str
    dtype: str
    weights: str = "plain"
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of `generate`; those that read ahead are for one row."""

    @property
    def settings(self) -> dict[str, Any]:
        """What a process is started with: contenders of the same settings share one."""
        weights = {"weights": self.weights} if self.library == OURS else {}
        return {"library": self.library, "source": self.source, "dtype": self.dtype, **weights}

    @property
    def is_plain(self) -> bool:
        return not self.options


@dataclass
class Speed:
    """Writing so many rows."""

    tokens_per_second: float
    step_seconds: float
    """The median; the mean, of which tokens a second are made, has more where weights are laid out first."""
    limit_seconds: float
    """Of a step that did nothing but read the weights."""
    share_of_limit: float
    products_seconds: float | None
    """Of a step, in products with weights; known of ours alone."""


@dataclass
class Found:
    """What was measured of a contender."""

    name: str
    library: str
    plain: bool
    weight_bytes: float
    """What a step reads of the weights."""
    writing: dict[int, Speed] = field(default_factory=dict)
    prefill: dict[int, float] = field(default_factory=dict)
    """Tokens a second, by the length of a prompt."""
    same_tokens: float = 0.0
    """How many leading tokens of a text are those of the first contender's, on average."""
    loading: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """How much is measured."""

    n_new: int
    repeats: int
    loads: int
    n_threads: int
    quick: bool


def worker(library: str, source: str, dtype: str, n_threads: int, weights: str | None = None) -> Worker:
    """One library with one model."""
    kept = {} if weights is None else {"weights": weights}
    given = {"library": library, "source": source, "dtype": dtype, "n_threads": n_threads, **kept}
    return Worker("benchmarks.decode_worker", [json.dumps(given)], n_threads)


class Case:
    """Some contenders with one model, each loaded once; they take turns."""

    def __init__(self, title: str, contenders: list[Contender], prompts: tuple[int, ...], plan: Plan) -> None:
        self.title, self.prompts, self.plan = title, prompts, plan
        self._texts = _texts(contenders[0].source)
        self.workers: dict[str, Worker] = {}
        self.contenders: list[Contender] = []
        self.starts: dict[str, list[dict[str, Any]]] = {}
        for contender in contenders:
            key = json.dumps(contender.settings)
            try:
                if key not in self.workers:
                    self.workers[key], self.starts[key] = self._start(contender)
            except NotInstalledError as error:
                print(f"{contender.name} is left out: {error}", file=sys.stderr)
                continue
            self.contenders.append(contender)
        self.found = {c.name: self._begun(c) for c in self.contenders}
        self._memories = {n: Memory(n) for n in {self._size(f) for f in self.found.values()}}

    def measure(self) -> list[Found]:
        """All there is to measure; ends the workers."""
        tokens: dict[str, dict[int, Any]] = {c.name: {} for c in self.contenders}
        for n_rows in ROWS:
            rows = [text[:N_PROMPT] for text in self._texts[:n_rows]]
            them = [c for c in self.contenders if n_rows == 1 or not c.options.get("lookup")]
            for c in them if n_rows == 1 else []:
                self._ask(c, rows=rows, n_new=4)
            answers = self._in_turns(them, rows=rows, n_new=self.plan.n_new)
            for c in them:
                tokens[c.name][n_rows] = answers[c.name][-1]["tokens"]
                if n_rows == 1:
                    self._note_memory(c, answers[c.name][0])
            shares = self._products(them, rows)
            for c in them:
                self._note_speed(c, n_rows, answers[c.name], shares.get(c.name))
        for length in self.prompts:
            them = [c for c in self.contenders if c.is_plain]
            answers = self._in_turns(them, rows=[self._texts[0][:length]], n_new=1)
            for c in them:
                seconds = statistics.median(a["prefill_seconds"] for a in answers[c.name])
                self.found[c.name].prefill[length] = length / seconds
        first = tokens[self.contenders[0].name]
        for c in self.contenders:
            pairs = [(a, b) for n, texts in tokens[c.name].items() for a, b in zip(texts, first[n], strict=True)]
            self.found[c.name].same_tokens = statistics.mean(_common(a, b) for a, b in pairs)
            if c.is_plain:
                # At the end, for it takes memory that is not to be counted.
                self.found[c.name].loading |= self.workers[json.dumps(c.settings)].ask(tokenizer=True)
        for each in self.workers.values():
            each.close()
        return list(self.found.values())

    def _start(self, c: Contender) -> tuple[Worker, list[dict[str, Any]]]:
        """A worker, and what starting it took, several times over."""
        made, starts = None, []
        for _ in range(self.plan.loads):
            if made is not None:
                made.close()
            made = Worker(
                "benchmarks.decode_worker",
                [json.dumps({**c.settings, "n_threads": self.plan.n_threads})],
                self.plan.n_threads,
            )
            starts.append(made.made)
            if made.made["load_seconds"] > PATIENCE:
                break
        assert made is not None
        return made, starts

    def _begun(self, c: Contender) -> Found:
        key = json.dumps(c.settings)
        starts, weighed = self.starts[key], self.workers[key].made["weight_bytes"]
        if c.options.get("shortlist"):
            weighed = self.workers[key].ask(weigh={"shortlist": True})["weight_bytes"]
        loading = {name: statistics.median(one[name] for one in starts) for name in starts[0]}
        return Found(c.name, c.library, c.is_plain, weighed, loading=loading)

    def _ask(self, c: Contender, **request: Any) -> dict[str, Any]:
        return self.workers[json.dumps(c.settings)].ask(**request, **c.options)

    def _in_turns(self, contenders: list[Contender], **request: Any) -> dict[str, list[dict[str, Any]]]:
        answers: dict[str, list[dict[str, Any]]] = {c.name: [] for c in contenders}
        slow: set[str] = set()
        for turn in range(self.plan.repeats):
            for c in contenders:
                if turn >= 2 and c.name in slow:
                    continue
                memory = self._memories[self._size(self.found[c.name])]
                limit = memory.read() / memory.n_bytes * self.found[c.name].weight_bytes
                start = time.monotonic()
                answers[c.name].append({**self._ask(c, **request), "limit_seconds": limit})
                if time.monotonic() - start > PATIENCE:
                    slow.add(c.name)
        return answers

    def _products(self, contenders: list[Contender], rows: list[list[int]]) -> dict[str, float]:
        """The share of a step's time that goes into products with weights."""
        ours = [c for c in contenders if c.library == OURS and not c.options.get("lookup")]
        # From sixteen tokens on weights are laid out anew.
        answers = {c.name: self._ask(c, rows=rows, n_new=24, products=True) for c in ours}
        return {name: answer["products_seconds"] / answer["step_seconds"] for name, answer in answers.items()}

    def _note_memory(self, c: Contender, answer: dict[str, Any]) -> None:
        """While one text was written, which is asked before all else."""
        loading = self.found[c.name].loading
        loading["written_bytes"] = answer["peak_bytes"]

    def _note_speed(self, c: Contender, n_rows: int, answers: list[dict[str, Any]], share: float | None) -> None:
        means = [a["steps_seconds"] / (self.plan.n_new - 1) for a in answers]
        limits = [a["limit_seconds"] for a in answers]
        step = statistics.median(a["step_seconds"] for a in answers)
        self.found[c.name].writing[n_rows] = Speed(
            tokens_per_second=n_rows / statistics.median(means),
            step_seconds=step,
            limit_seconds=statistics.median(limits),
            share_of_limit=statistics.median(limit / mean for limit, mean in zip(limits, means, strict=True)),
            products_seconds=None if share is None else share * step,
        )

    @staticmethod
    def _size(found: Found) -> int:
        """Near enough, so that contenders share a measure."""
        return max(1, round(found.weight_bytes / 2**24)) * 2**24


def _texts(source: str) -> list[list[int]]:
    """A text for each row in the tokens of a model: English about Python, which every Python brings. Where there is no
    tokenizer, ids every vocabulary here has.
    """
    from clearhead.checkpoints.load import load_tokenizer

    try:
        tokenizer = load_tokenizer(source)
    except ClearheadError:
        tokenizer = None
    if tokenizer is None:
        return [[1000 + (97 * row + 31 * i) % 20000 for i in range(2048)] for row in range(max(ROWS))]
    longest = sorted(topics.values(), key=len, reverse=True)
    return [tokenizer.encode(text)[:2048] for text in longest[: max(ROWS)]]


def _common(a: list[int], b: list[int]) -> int:
    """How many leading items are the same."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))


def gemma_file(folder: Path, plan: Plan) -> Case:
    file = str(_shipped())
    contenders = [
        Contender("clearhead, unpacked", OURS, file, "float32"),
        Contender("clearhead float32", OURS, file, "float32", "stored"),
        Contender("clearhead float32, shortlist", OURS, file, "float32", "stored", {"shortlist": True}),
        Contender("clearhead float32, look-up", OURS, file, "float32", "stored", {"lookup": True}),
        Contender("clearhead bfloat16", OURS, file, "bfloat16", "stored"),
        Contender("llama.cpp", "llama.cpp", file, ""),
    ]
    return Case("Gemma 3 270M, Q4_K_M file", contenders, (512, 2048), plan)


def gemma_bfloat16(folder: Path, plan: Plan) -> Case:
    from benchmarks.gguf_bfloat16 import write_bfloat16

    file = folder / "gemma-bfloat16.gguf"
    write_bfloat16(_shipped(), file)
    contenders = [
        Contender("clearhead", OURS, str(file), "bfloat16"),
        Contender("clearhead, shortlist", OURS, str(file), "bfloat16", options={"shortlist": True}),
        Contender("llama.cpp", "llama.cpp", str(file), ""),
        Contender("transformers", "transformers", _saved(folder / "gemma-bfloat16", str(file), "bfloat16"), "bfloat16"),
    ]
    return Case("Gemma 3 270M, bfloat16", contenders, (512, 2048), plan)


def gemma_float32(folder: Path, plan: Plan) -> Case:
    file = str(_shipped())
    # The peer takes most of a minute to read a GGUF file.
    theirs = _saved(folder / "gemma-float32", file, "float32") if plan.quick else file
    contenders = [
        Contender("clearhead", OURS, file, "float32"),
        Contender("clearhead, shortlist", OURS, file, "float32", options={"shortlist": True}),
        Contender("transformers", "transformers", theirs, "float32"),
    ]
    return Case("Gemma 3 270M, float32", contenders, (512, 2048), plan)


def gpt2_float32(folder: Path, plan: Plan) -> Case:
    source = _gpt2(folder)
    contenders = [
        Contender("clearhead", OURS, source, "float32"),
        *_converted(source, folder, None, "float32"),
        Contender("transformers", "transformers", source, "float32"),
    ]
    return Case("GPT-2 124M, random, float32", contenders, (512,), plan)


def gpt2_int8(folder: Path, plan: Plan) -> Case:
    source = _gpt2(folder)
    contenders = [
        Contender("clearhead", OURS, source, "float32", "int8"),
        *_converted(source, folder, "int8", "int8_float32"),
    ]
    return Case("GPT-2 124M, random, 8 bits", contenders, (512,), plan)


def gpt2_bfloat16(folder: Path, plan: Plan) -> Case:
    source = _gpt2(folder)
    contenders = [
        Contender("clearhead", OURS, source, "bfloat16"),
        Contender("transformers", "transformers", source, "bfloat16"),
    ]
    return Case("GPT-2 124M, random, bfloat16", contenders, (512,), plan)


CASES: dict[str, Callable[[Path, Plan], Case]] = {
    "gemma-file": gemma_file,
    "gemma-bfloat16": gemma_bfloat16,
    "gemma-float32": gemma_float32,
    "gpt2-float32": gpt2_float32,
    "gpt2-int8": gpt2_int8,
    "gpt2-bfloat16": gpt2_bfloat16,
}


def _shipped() -> Path:
    from clearhead.checkpoints.shipped import shipped_file

    return shipped_file("gemma3-270m")


def _saved(folder: Path, source: str, dtype: str) -> str:
    """A model in the Hub's layout."""
    import clearhead

    clearhead.save(clearhead.load(source, dtype=dtype), folder)
    return str(folder)


def _gpt2(folder: Path) -> str:
    """A random one in the Hub's layout, made once."""
    import torch

    import clearhead
    from clearhead.config import TransformerConfig
    from clearhead.costs.source import read_config
    from clearhead.model.build import build
    from clearhead.model.init import initialise

    target = folder / "gpt2"
    if not target.exists():
        config = read_config("gpt2").config
        assert isinstance(config, TransformerConfig)
        torch.manual_seed(0)
        model = build(config)
        initialise(model)
        clearhead.save(model, target, family="gpt2")
    return str(target)


def _converted(source: str, folder: Path, quantization: str | None, dtype: str) -> list[Contender]:
    """CTranslate2 with a model, where it is installed."""
    from benchmarks.decode_peers import convert

    target = folder / f"ctranslate2-{dtype}"
    try:
        convert(source, target, quantization)
    except ImportError as error:
        print(f"CTranslate2 is left out: {error}", file=sys.stderr)
        return []
    return [Contender("CTranslate2", "CTranslate2", str(target), dtype)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="48 new tokens, three repeats, one load")
    parser.add_argument("--new", type=int, help="new tokens")
    parser.add_argument("--repeats", type=int, help="turns of each")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--force", action="store_true", help="measure although others use the processors")
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="threads on all sides (one a processor)")
    parser.add_argument("--case", choices=CASES, action="append", help="what to measure; may be repeated")
    options = parser.parse_args()
    load = require_quiet(options.force)
    import torch

    torch.set_num_threads(options.threads)
    n_new, repeats, loads = (48, 3, 1) if options.quick else (128, 5, 3)
    plan = Plan(options.new or n_new, options.repeats or repeats, loads, options.threads, options.quick)
    console = Console() if sys.stdout.isatty() else Console(width=180)
    told: dict[str, Any] = {"plan": asdict(plan), "foreign_load": load, "cases": {}}
    if not options.json:
        console.print(f"{plan.n_threads} threads, others use {load:.0%}")
    for name in options.case or CASES:
        with tempfile.TemporaryDirectory() as folder:
            case = CASES[name](Path(folder), plan)
            found = case.measure()
        told["cases"][name] = [asdict(one) for one in found]
        if not options.json:
            for table in (speed_table, ratio_table, load_table):
                console.print(table(case.title, found, plan.n_new))
    if options.json:
        print(json.dumps(told, indent=1))


if __name__ == "__main__":
    main()
