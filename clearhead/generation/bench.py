"""What this machine gives for a model, and why: each pace beside the limit that memory and arithmetic set.

A step waits for three things: bytes that come out of memory, operations at the peak of products, and the calls of
hundreds of small operations. Each is measured by itself, the first two as the machine's best, the last on a model of
the same layers that is next to nothing wide; what none of them explains is the rest.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.config import TokensConfig, TransformerConfig
from clearhead.costs.count import Counts, counts
from clearhead.costs.machine import read_bandwidth, this_peak
from clearhead.costs.overhead import step_overhead
from clearhead.costs.time import reading, weights_read, writing
from clearhead.errors import ClearheadError, UsageError
from clearhead.generation.api import generate

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

ROWS = (1, 8)
"""Texts written at once."""
PROMPT, TEXT, BEFORE = 512, 128, 16
"""Tokens of a prompt, of a text for an encoder, and of what is written behind."""
REPEATS = 3
MEMORY, ARITHMETIC, CALLS = "memory", "arithmetic", "calls"
Told = Callable[[str], object]


@dataclass(frozen=True)
class Machine:
    """What the machine can do at most."""

    threads: int
    bandwidth: float
    """Bytes a second that are read from memory."""
    peaks: Mapping[str, float]
    """Operations a second of products, by dtype."""


@dataclass(frozen=True)
class Loaded:
    """What loading took."""

    seconds: float
    file_bytes: int | None
    weight_bytes: int
    """As they are held."""
    peak_bytes: int | None
    """How far the memory of the process rose, where the system tells."""


@dataclass(frozen=True)
class Pace:
    """One kind of work: how long it took, and how long it would take if it waited for one thing only."""

    name: str
    tokens: int
    """Of a pass: read, or written by all texts together."""
    seconds: float
    """Of a pass."""
    bytes: float
    flops: float
    waits: Mapping[str, float]
    """Seconds by what is waited for."""

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def limit(self) -> float:
        """Tokens a second at the machine's limit: no pass is faster than its memory or its arithmetic."""
        return self.tokens / max(self.waits[MEMORY], self.waits[ARITHMETIC])

    @property
    def share(self) -> float:
        """Of the limit."""
        return self.tokens_per_second / self.limit

    @property
    def bound_by(self) -> str:
        """What takes most of the time."""
        return max(self.waits, key=lambda name: self.waits[name])


@dataclass(frozen=True)
class Benched:
    """What was measured of a model."""

    model: str
    dtype: str
    machine: Machine
    loaded: Loaded
    paces: tuple[Pace, ...]


def measure_machine(told: Told = lambda _: None) -> Machine:
    """The machine alone, in a second or two."""
    told("measuring how fast memory is read")
    bandwidth = read_bandwidth()
    told("measuring products")
    peaks = {name: this_peak(getattr(torch, name)) for name in ("float32", "bfloat16")}
    return Machine(torch.get_num_threads(), bandwidth, peaks)


def measure_load(load: Callable[[], Transformer], source: str) -> tuple[Transformer, Loaded]:
    """Load the model, and what that took. The high-water mark of the process is set back where the system lets it."""
    before = _resident()
    start = time.perf_counter()
    model = load()
    seconds = time.perf_counter() - start
    after = _status("VmHWM")
    rose = None if before is None or after is None else max(0, after - before)
    where = Path(source if model.origin is None else model.origin.where)
    return model, Loaded(seconds, _file_bytes(where), sum(map(_held, _weights(model))), rose)


def measure_paces(
    model: Transformer, machine: Machine, *, prompt: int | None = None, new: int = 32, told: Told = lambda _: None
) -> tuple[Pace, ...]:
    """Reading a prompt, and writing 1 and 8 texts behind a short one; of an encoder, reading 1 and 8 texts.

    prompt: tokens that are read at once; None is `PROMPT`, for an encoder `TEXT`, or as many as there is room for.
    new: tokens that are written to each text.

    Raises:
        ClearheadError: the model doesn't read tokens alone, so that there is no text to give it.
        UsageError: the sizes are too small to be measured, or beyond the model's context.
    """
    config = model.config
    if not isinstance(config, TransformerConfig) or not isinstance(config.stack.embed.front, TokensConfig):
        raise ClearheadError("what is measured is reading and writing of tokens, and this model reads something else")
    if config.encoder is not None and config.decoder is not None:
        raise ClearheadError("a decoder beside an encoder can't be measured yet; give a model with one stack")
    writes = config.decoder is not None
    room = 2**30 if config.context is None else config.context
    n_read = min(PROMPT if writes else TEXT, room) if prompt is None else prompt
    if n_read < 1 or new < 3:
        raise UsageError(f"the prompt is {n_read} tokens and {new} are written; there must be 1 and 3 at least")
    if n_read > room or (writes and BEFORE + new > room):
        most = max(n_read, BEFORE + new) if writes else n_read
        raise UsageError(f"{most} tokens are beyond the {room} this model was made for; ask for fewer")
    meter = _Meter(model, counts(config), machine, _dtype(model))
    if not writes:
        return tuple(meter.read(rows, n_read, told) for rows in ROWS)
    return (meter.read(1, n_read, told), *(meter.write(rows, new, told) for rows in ROWS))


class _Meter:
    """One model on one machine."""

    def __init__(self, model: Transformer, of: Counts, machine: Machine, dtype: torch.dtype) -> None:
        self.model, self.of, self.machine, self.dtype = model, of, machine, dtype
        held = sum(map(_held, _read_each_pass(model)))
        self.width = held / max(1.0, weights_read(of, 2**30))
        """Bytes of a number of the weights, on average, as they are held."""

    def read(self, rows: int, tokens: int, told: Told) -> Pace:
        """A pass over texts, of which a decoder scores the last token."""
        told(f"reading {rows} x {tokens} tokens")
        load = reading(self.of, rows, tokens, self.dtype.itemsize)
        ids_BT = self._ids(rows, tokens)
        if self.model.config.decoder is None:
            run: Callable[[], object] = lambda: self.model(ids_BT, read=False)  # noqa: E731
        else:
            run = lambda: self.model(ids_BT, state=self.model.new_state(tokens), last=1)  # noqa: E731
        with torch.inference_mode():
            run()
            seconds = statistics.median(_seconds(run) for _ in range(REPEATS))
        weights = self.width * weights_read(self.of, rows * tokens)
        return self._pace(f"read {rows} x {tokens}", rows * tokens, seconds, weights + load.state_bytes, load.flops, 1)

    def write(self, rows: int, new: int, told: Told) -> Pace:
        """Steps of writing; the first token of each text is left out, which is the prompt's."""
        told(f"writing {rows} x {new} tokens")
        load = writing(self.of, rows, BEFORE + new // 2, self.dtype.itemsize)
        ids = self._ids(rows, BEFORE).tolist()
        passes: list[float] = []
        hook = self.model.register_forward_hook(lambda *_: passes.append(time.perf_counter()))
        found = []
        try:
            for _ in range(REPEATS):
                passes.clear()
                generate(self.model, ids, max_new_tokens=new, temperature=0, stop_tokens=(), follow_config=False)
                # The first step lays weights out for the processor, which is done once a text.
                steps = [b - a for a, b in pairwise(passes[1:])]
                found.append(statistics.median(steps))
        finally:
            hook.remove()
        weights = self.width * weights_read(self.of, rows)
        name = f"write {rows} {'text' if rows == 1 else 'texts'}"
        return self._pace(name, rows, statistics.median(found), weights + load.state_bytes, load.flops, rows)

    def _pace(self, name: str, tokens: int, seconds: float, n_bytes: float, flops: float, rows: int) -> Pace:
        config = self.model.config
        waits = {
            MEMORY: n_bytes / self.machine.bandwidth,
            ARITHMETIC: flops / self.machine.peaks.get(kind_of(self.model), self.machine.peaks["float32"]),
            CALLS: step_overhead(config, self.dtype, rows) if config.decoder is not None else 0.0,
        }
        return Pace(name, tokens, seconds, n_bytes, flops, waits)

    def _ids(self, rows: int, tokens: int) -> Tensor:
        """Ids that every vocabulary has, none twice in a row."""
        size = min(self.model.config.vocab_size, 20000)
        first = min(1000, size // 2)
        return first + (97 * torch.arange(rows)[:, None] + 31 * torch.arange(tokens)) % (size - first)


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def kind_of(model: Transformer) -> str:
    """The dtype of most of the weights, in a word."""
    return str(_dtype(model)).removeprefix("torch.")


def _dtype(model: Transformer) -> torch.dtype:
    """That of most of the weights."""
    sizes: dict[torch.dtype, int] = {}
    for weight in model.parameters():
        sizes[weight.dtype] = sizes.get(weight.dtype, 0) + weight.numel()
    return max(sizes, key=lambda dtype: sizes[dtype])


def _weights(model: Transformer) -> Sequence[Tensor]:
    return [*model.parameters()]


def _read_each_pass(model: Transformer) -> list[Tensor]:
    """All weights but tables of vectors, of which a pass reads a row a token; and the one of tokens where it is the
    head.
    """
    tables = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    if model.head is not None and model.head.weight is None and model.embed.tokens is not None:
        tables.discard(id(model.embed.tokens.weight))
    return [weight for weight in _weights(model) if id(weight) not in tables]


def _held(tensor: Any) -> int:
    """Bytes of a tensor; of one that is made of others, theirs."""
    if hasattr(tensor, "__tensor_flatten__"):
        names, _ = tensor.__tensor_flatten__()
        return sum(_held(getattr(tensor, name)) for name in names)
    return int(tensor.nbytes)


def _file_bytes(where: Path) -> int | None:
    """Of the file, or of the files of weights in a folder."""
    if where.is_file():
        return where.stat().st_size
    kinds = ("*.safetensors", "*.bin", "*.gguf")
    found = [path.stat().st_size for kind in kinds for path in where.glob(kind)] if where.is_dir() else []
    return sum(found) or None


def _resident() -> int | None:
    """Bytes this process holds; and from here on the high-water mark counts anew."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return None
    return _status("VmRSS")


def _status(field: str) -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":")), None)
