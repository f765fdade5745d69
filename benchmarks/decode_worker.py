"""One side of benchmarks/decode.py, in a process of its own: loads a model once, then answers requests, a line of JSON
each way. `python -m benchmarks.decode_worker '{"library": ..., "source": ..., "dtype": ..., "n_threads": ...}'`.
"""

from __future__ import annotations

import importlib
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol
from unittest import mock

from benchmarks.worker import MISSING

FIRST_PROMPT = list(range(1000, 1008))
"""What the first token of a new process follows."""


class Side(Protocol):
    """A library with a model loaded."""

    def generate(self, rows: list[list[int]], n_new: int, **options: Any) -> tuple[list[list[int]], list[float]]:
        """The greedy tokens, no token ending a text; and when each pass over the model ended, the prompts' first."""
        ...

    def weight_bytes(self) -> float:
        """Bytes of the weights a step reads, as they are kept."""
        ...

    def tokenizer_seconds(self) -> float:
        """How long the tokenizer takes by itself."""
        ...

    def products(self) -> AbstractContextManager[list[float]]:
        """Times the products with weights: the seconds spent on them when each pass ended, since the first ever."""
        ...


class Clearhead:
    NEEDS = ("clearhead.checkpoints.load", "clearhead.generation.api", "clearhead.generation.shortlist")
    SKETCH = 0.69
    """Bytes a weight of the head that a shortlist reads in its place."""

    def __init__(self, source: str, dtype: str, n_threads: int, weights: str = "plain") -> None:
        import torch

        import clearhead
        from clearhead.checkpoints import load as loading

        torch.set_num_threads(n_threads)
        self.clearhead, self._later = clearhead, list[Any]()
        tokenizer = loading._tokenizer
        # Timed by itself, and out of the way of the memory that is measured.
        with mock.patch.object(loading, "_tokenizer", lambda *given: self._later.append(given)):
            self.model = clearhead.load(source, dtype=dtype, weights=weights)  # type: ignore[arg-type]
        self._tokenizer = tokenizer
        self._passes: list[float] = []
        self._spent, self._spent_at = 0.0, list[float]()
        self.model.register_forward_hook(self._passed)

    def _passed(self, *_: Any) -> None:
        self._passes.append(time.perf_counter())
        self._spent_at.append(self._spent)

    def generate(self, rows: list[list[int]], n_new: int, **options: Any) -> tuple[list[list[int]], list[float]]:
        self._passes.clear()
        plain: dict[str, Any] = {"max_new_tokens": n_new, "temperature": 0, "stop_tokens": ()}
        results = self.clearhead.generate(self.model, rows, **plain, **options)
        # A long prompt is read in several passes.
        first = 0 if options.get("lookup") else -n_new
        return [result.tokens for result in results], self._passes[first:]

    def weight_bytes(self, shortlist: bool = False) -> float:
        import torch

        from clearhead.generation.shortlist import GREEDY_FROM

        model, head = self.model, self.model.unembedding
        tables = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)} - {id(head)}
        whole = sum(p.nbytes for p in model.parameters() if id(p) not in tables)
        if not shortlist or head.nbytes < GREEDY_FROM * head.numel():
            return whole
        return whole - head.nbytes + self.SKETCH * head.numel()

    def tokenizer_seconds(self) -> float:
        start = time.perf_counter()
        for checkpoint, model in self._later:
            self._tokenizer(checkpoint, model)
        return time.perf_counter() - start

    def save(self, folder: str) -> None:
        self.clearhead.save(self.model, folder)

    @contextmanager
    def products(self) -> Iterator[list[float]]:
        from clearhead.generation import shortlist
        from clearhead.ops import matmul, quantised

        inside = False

        def timed(f: Callable[..., Any]) -> Callable[..., Any]:
            def wrapped(*args: Any, **kwargs: Any) -> Any:
                nonlocal inside
                if inside:
                    return f(*args, **kwargs)
                inside, start = True, time.perf_counter()
                try:
                    return f(*args, **kwargs)
                finally:
                    self._spent += time.perf_counter() - start
                    inside = False

            return wrapped

        places = {
            matmul: ("linear", "packed_linear"),
            quantised: ("product", "several"),
            shortlist: ("upper_bounds",),
        }
        self._spent_at.clear()
        with ExitStack() as patches:
            for place, names in places.items():
                for name in names:
                    patches.enter_context(mock.patch.object(place, name, timed(getattr(place, name))))
            yield self._spent_at


class Transformers:
    NEEDS = ("transformers.models.auto.modeling_auto",)

    def __init__(self, source: str, dtype: str, n_threads: int) -> None:
        import torch
        import transformers

        torch.set_num_threads(n_threads)
        transformers.logging.set_verbosity_error()
        transformers.logging.disable_progress_bar()
        folder, file = (str(Path(source).parent), Path(source).name) if source.endswith(".gguf") else (source, None)
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            folder, gguf_file=file, dtype=getattr(torch, dtype)
        )
        self.model, self.torch, self._where = model.eval(), torch, (folder, file)
        self._passes: list[float] = []
        self.model.register_forward_hook(lambda *_: self._passes.append(time.perf_counter()))

    def generate(self, rows: list[list[int]], n_new: int, **options: Any) -> tuple[list[list[int]], list[float]]:
        # No token ends a text, and the best one is taken whatever the checkpoint advises.
        advised = self.model.generation_config
        advised.eos_token_id, advised.pad_token_id = None, 0
        tokens = self.torch.tensor(rows)
        mask = self.torch.ones_like(tokens)
        self._passes.clear()
        out = self.model.generate(tokens, attention_mask=mask, do_sample=False, max_new_tokens=n_new)
        return out[:, tokens.shape[1] :].tolist(), self._passes.copy()

    def weight_bytes(self) -> float:
        return float(sum(p.nbytes for p in self.model.parameters()))

    def tokenizer_seconds(self) -> float:
        import transformers

        start = time.perf_counter()
        folder, file = self._where
        if file is not None or (Path(folder) / "tokenizer.json").exists():
            transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file)
        return time.perf_counter() - start

    def products(self) -> AbstractContextManager[list[float]]:
        raise NotImplementedError


SIDES = {
    "clearhead": "benchmarks.decode_worker:Clearhead",
    "transformers": "benchmarks.decode_worker:Transformers",
    "llama.cpp": "benchmarks.decode_peers:LlamaCpp",
    "CTranslate2": "benchmarks.decode_peers:CTranslate2",
}


def memory(field: str) -> int:
    """Bytes of this process's memory: VmRSS now, VmHWM the most it ever had."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(field + ":")[1].split()[0]) * 1024


@contextmanager
def answering() -> Iterator[Callable[[dict[str, Any]], None]]:
    """Only answers go to the pipe: whatever a library prints goes to standard error."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)

        def answer(what: dict[str, Any]) -> None:
            print(json.dumps(what), file=answers, flush=True)

        yield answer


def imported(library: str) -> Callable[..., Any]:
    """A side's class, once all it needs is imported; ends the process where that is not installed."""
    module, _, name = SIDES[library].partition(":")
    # A module that is run is another than the one of its name.
    made: Any = globals()[name] if module == "benchmarks.decode_worker" else None
    try:
        if made is None:
            made = getattr(importlib.import_module(module), name)
        for needed in made.NEEDS:
            importlib.import_module(needed)
    except ImportError as error:
        print(error, file=sys.stderr)
        sys.exit(MISSING)
    side: Callable[..., Any] = made
    return side


def written(side: Side, request: dict[str, Any]) -> dict[str, Any]:
    """Texts, and how long they took."""
    how = side.products() if request.pop("products", False) else nullcontext([])
    with how as spent:
        start = time.perf_counter()
        tokens, passes = side.generate(request.pop("rows"), request.pop("n_new"), **request)
    return {
        "tokens": tokens,
        "prefill_seconds": passes[0] - start,
        "steps_seconds": passes[-1] - passes[0],
        "step_seconds": _middle(passes),
        "products_seconds": _middle(spent),
        "peak_bytes": memory("VmHWM"),
    }


def _middle(times: list[float]) -> float:
    """The median of what lies between."""
    return statistics.median(b - a for a, b in pairwise(times)) if len(times) > 1 else 0.0


def main() -> None:
    given = json.loads(sys.argv[1])
    with answering() as answer:
        start = time.perf_counter()
        made = imported(given.pop("library"))
        ready, before = time.perf_counter(), memory("VmRSS")
        side: Side = made(**given)
        loaded = time.perf_counter()
        side.generate([FIRST_PROMPT], 1)
        first, peak = time.perf_counter(), memory("VmHWM")
        answer(
            {
                "import_seconds": ready - start,
                "load_seconds": loaded - ready,
                "first_token_seconds": first - ready,
                "imported_bytes": before,
                "peak_bytes": peak,
                "weight_bytes": side.weight_bytes(),
            }
        )
        for line in sys.stdin:
            request = json.loads(line)
            if "save" in request:
                assert isinstance(side, Clearhead)
                side.save(request["save"])
                answer({})
            elif "weigh" in request:
                answer({"weight_bytes": side.weight_bytes(**request["weigh"])})
            elif "tokenizer" in request:
                answer({"tokenizer_seconds": side.tokenizer_seconds()})
            else:
                answer(written(side, request))


if __name__ == "__main__":
    main()
