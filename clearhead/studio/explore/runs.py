"""The runs of a Studio: what a model computed of one text, kept while there is room, found again by what it was.

A run is known by the hash of the model, what it read and what was taken out. Its patterns are kept exactly where they
are few, and as bytes where they are many; whatever else is asked for is recorded by one more pass, which ends as soon
as it is there.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from threading import Event, RLock
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from clearhead.errors import UsageError
from clearhead.studio.explore.ablations import Ablation, code_of, edits_of
from clearhead.studio.explore.coding import encode
from clearhead.studio.explore.given import Given, Read, Reading, Token, read
from clearhead.studio.explore.recording import record
from clearhead.studio.explore.samples import PICTURES, SOUNDS
from clearhead.studio.explore.sizes import FIRST_RATE, n_cells, operations
from clearhead.studio.explore.uploads import Uploads
from clearhead.taps import catalogue, resolve

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.models import Models

MAX_BYTES = 1 << 30
"""Of all that the runs keep."""
MAX_RECORD = 800 << 20
"""Of what one pass may record."""
EXACT = 384 << 20
"""Patterns that take more bytes than this as float32 are kept as one byte a cell."""
MAX_SECONDS = 120.0
"""A pass that would take longer, as far as can be said before, is not begun."""
TELLING = 2e10
"""Operations from which on the time of a pass says how fast the next will be; a short one is mostly overhead."""
SLOWEST = FIRST_RATE / 4
"""Operations a second: one pass on a machine that was busy shall not forbid the next."""
PATTERN = ".pattern"


@dataclass(frozen=True)
class Kept:
    """What is kept of a run, by address."""

    values: OrderedDict[str, Tensor] = field(default_factory=OrderedDict)
    """float32 (whole numbers stay whole), with the batch axis; the one used last stands last."""
    codes: dict[str, Tensor] = field(default_factory=dict)
    """Patterns as bytes (see `coding`), with the batch axis."""


@dataclass(frozen=True)
class Spent:
    """What the first pass of a run took."""

    ms: float = 0.0
    peak_bytes: int = 0
    """By how much the process grew meanwhile."""


@dataclass(eq=False)
class Run:
    """One model, what it read, and what was kept of it."""

    id: str
    model: str
    """Its id in the Studio."""
    loading: str
    """The line of Python that makes it."""
    reading: Reading
    ablate: tuple[Ablation, ...]
    stamp: int = 0
    """Of the model's weights: see `Models.stamp`."""
    kept: Kept = field(default_factory=Kept)
    spent: Spent = Spent()

    @property
    def values(self) -> OrderedDict[str, Tensor]:
        return self.kept.values

    @property
    def codes(self) -> dict[str, Tensor]:
        return self.kept.codes

    @property
    def given(self) -> Given:
        return self.reading.given

    @property
    def reads(self) -> tuple[Read, ...]:
        return self.reading.reads

    @property
    def tokens(self) -> list[Token]:
        """What the stack that gives the output reads."""
        return list(self.reading.reads[0].tokens)

    @property
    def sources(self) -> list[Token]:
        """What the other stack reads, where there are two."""
        return list(self.reading.reads[1].tokens) if len(self.reading.reads) > 1 else []

    def slots(self, stack: str) -> list[Token]:
        """What one stack reads, by its path."""
        return next(list(one.tokens) for one in self.reading.reads if one.stack == stack)

    def inputs(self, model: Transformer) -> dict[str, Any]:
        """What `clearhead.look`, `clearhead.edit` and the model itself take."""
        return {name: value.to(model.device) for name, value in self.reading.inputs.items()}

    def edits(self, model: Transformer) -> list[Any]:
        """What was taken out, as `clearhead.look(edits=...)` takes it."""
        return edits_of(model, self.ablate)

    @property
    def n_bytes(self) -> int:
        # Lists: another thread may be adding to them.
        return sum(value.nbytes for kept in (self.values, self.codes) for value in list(kept.values()))

    def opening(self, model: Transformer) -> str:
        """Python that begins an account of this run: `model`, `inputs`, and `edits` where something was taken out."""
        inputs, imports = self._inputs_as_python()
        lines = ["import clearhead"]
        if self.ablate:
            lines.append("from clearhead.lens import at, forbid, mean, zero")
        lines += [*imports, "", self.loading, f"inputs = {inputs}"]
        if self.ablate:
            lines.append(f"edits = {code_of(model, self.ablate)}")
        return "\n".join(lines) + "\n"

    def look(self, *addresses: str) -> str:
        """Python for `clearhead.look` at addresses of this run, after `opening`."""
        wanted = ", ".join(f'"{address}"' for address in addresses)
        return f"clearhead.look(model, inputs, {wanted}{', edits=edits' if self.ablate else ''})"

    def _inputs_as_python(self) -> tuple[str, list[str]]:
        """What the model is given, and the import lines that it takes."""
        given, names = self.reading.given, self.reading.inputs
        if set(names) == {"tokens"} and given.ids is None and not self.reading.has_marks:
            return ascii_only(given.text or ""), []
        parts, imports = [], []
        if "tokens" in names:
            parts.append(f'"tokens": {self.reading.inputs["tokens"][0].tolist()}')
        if "source" in names:
            parts.append(f'"source": {ascii_only(given.source or "")}')
        if "pixels" in names:
            drawn = given.picture in PICTURES
            parts.append(f'"pixels": {f"sample_picture({given.picture!r})" if drawn else _YOUR_PICTURE}')
            imports += ["sample_picture"] if drawn else []
        if "frames" in names:
            made = given.sound in SOUNDS
            parts.append(f'"frames": {f"sample_sound({given.sound!r}, 16000)" if made else _YOUR_SOUND}')
            imports += ["sample_sound"] if made else []
        lines = [f"from clearhead.studio.explore.samples import {', '.join(imports)}"] if imports else []
        return "{" + ", ".join(parts) + "}", lines


_YOUR_PICTURE, _YOUR_SOUND = '"picture.png"', '"sound.wav"'
"""In place of what a browser sent: its path is not known here."""


def ascii_only(text: str) -> str:
    """Text as a Python literal in which nothing changes direction, and nothing is invisible."""
    return repr(text) if text.isprintable() and text.isascii() else ascii(text)


class Runs:
    """Runs by their id, the least recently used first to go."""

    def __init__(self, models: Models, *, max_bytes: int = MAX_BYTES) -> None:
        self.models = models
        self.max_bytes = max_bytes
        self.uploads = Uploads()
        self._runs: OrderedDict[str, Run] = OrderedDict()
        self._lock = RLock()
        self._rates: dict[str, float] = {}
        self._short: WeakKeyDictionary[Run, bool] = WeakKeyDictionary()

    # ---- asking

    def get(self, run: str) -> Run:
        """A run that is kept.

        Raises:
            UsageError: there is none of that id.
        """
        with self._lock:
            found = self._runs.get(run)
            if found is not None and found.stamp != self.models.stamp(found.model):
                del self._runs[run]
                found = None
            if found is None:
                raise UsageError("this run is no longer kept; give its text again")
            self._runs.move_to_end(run)
            return found

    def has(self, run: str, *addresses: str) -> bool:
        """Whether a question about these can be answered without a pass, and without loading a model."""
        with self._lock:
            found = self._runs.get(run)
        return found is not None and self.models.holds(found.model) and all(a in found.values for a in addresses)

    def make(
        self,
        model_id: str,
        given: Given,
        *,
        capture: Sequence[str] = (),
        ablate: Sequence[Ablation] = (),
        cancelled: Event | None = None,
    ) -> Run:
        """Run a model once, or find the run again, and keep what stands at the addresses `capture` names.

        Raises:
            UsageError: too many tokens, bytes or seconds, said before anything runs; or `cancelled` was set.
            ClearheadError: a text, an address or an ablation that the model has no answer to.
        """
        model: Transformer = self.models.get(model_id)
        with self.models.lock(model_id):
            if cancelled is not None and cancelled.is_set():
                raise UsageError("the run was cancelled")
            reading = read(model, given, self.uploads)
            stamp = self.models.stamp(model_id)
            run_id = _id_of(model_id, stamp, reading, ablate)
            with self._lock:
                run = self._runs.get(run_id)
            if run is None:
                # Kept only once its pass has gone through: what fails leaves nothing behind.
                run = Run(run_id, model_id, self.models.code(model_id), reading, tuple(ablate), stamp)
                edits_of(model, ablate)
            self._record(model, run, resolve(model, [*capture, *_finals(model)]), cancelled)
            with self._lock:
                self._runs[run_id] = run
            self._trim(run)
            return self.get(run_id)

    def record(self, run_id: str, addresses: Sequence[str], cancelled: Event | None = None) -> None:
        """Keep more of a run, in one pass.

        Raises:
            UsageError: there is no such run, or it would take too much.
            ClearheadError: an address that the model has not; the message has the nearest.
        """
        run = self.get(run_id)
        model: Transformer = self.models.get(run.model)
        with self.models.lock(run.model):
            self._record(model, run, resolve(model, addresses), cancelled)
        self._trim(run)

    def exact(self, run_id: str, address: str, cancelled: Event | None = None) -> Tensor:
        """What stands at an address, as float32 (whole numbers stay whole), with the batch axis.

        Raises:
            UsageError: there is no such run, or the value would take too much room.
            ClearheadError: the model has no such address.
        """
        run = self.get(run_id)
        value = run.values.get(address)
        if value is None:
            model: Transformer = self.models.get(run.model)
            with self.models.lock(run.model):
                self._record(model, run, resolve(model, [address]), cancelled, exact=True)
                value = run.values[address]
            self._trim(run)
        with self._lock:
            if address in run.values:
                run.values.move_to_end(address)
        return value

    def shares(self, run_id: str, address: str, cancelled: Event | None = None) -> Tensor:
        """A pattern for drawing: float32 where it is kept exactly, else bytes (see `coding`)."""
        run = self.get(run_id)
        for kept in (run.values, run.codes):
            if address in kept:
                return kept[address]
        self.record(run_id, [address], cancelled)
        return run.values[address] if address in run.values else run.codes[address]

    def reduced(self, run_id: str, address: str, how: Callable[[Tensor], Tensor], name: str) -> Tensor:
        """What `how` makes of the value at an address, kept under a name in its place: states are too large to keep.

        Raises:
            UsageError: there is no such run.
            ClearheadError: the model has no such address.
        """
        run = self.get(run_id)
        key = f"{address} {name}"
        if key not in run.values:
            model: Transformer = self.models.get(run.model)
            alike = [a for a in catalogue(model) if a.rpartition(".")[2] == address.rpartition(".")[2]]
            with self.models.lock(run.model):
                values, _ = record(
                    model, run.inputs(model), alike, lambda _, value: how(value.detach()).cpu(), edits=run.edits(model)
                )
            with self._lock:
                for where, value in values.items():
                    run.values[f"{where} {name}"] = value
            self._trim(run)
        return run.values[key]

    def letters(self, run: Run, address: str) -> list[str]:
        """The axes of a value without the batch's, in the library's letters.

        Raises:
            ClearheadError: the model has no such address.
        """
        model: Transformer = self.models.get(run.model)
        (known,) = resolve(model, [address])
        return [letter for letter in catalogue(model)[known].split() if letter != "B"]

    def is_short(self, run_id: str) -> bool:
        """Whether one more pass of a run is a matter of moments."""
        run = self.get(run_id)
        if run not in self._short:
            self._short[run] = operations(self.models.get(run.model), run.reading) < TELLING
        return self._short[run]

    def n_bytes(self, run_id: str, *addresses: str) -> dict[str, int]:
        """How many bytes the values at addresses would take."""
        run = self.get(run_id)
        model: Transformer = self.models.get(run.model)
        return {address: 4 * n_cells(model, address, run.reading) for address in resolve(model, addresses)}

    # ---- running

    def _record(
        self, model: Transformer, run: Run, addresses: Sequence[str], cancelled: Event | None, exact: bool = False
    ) -> None:
        missing = [a for a in addresses if a not in run.values and (exact or a not in run.codes)]
        if not missing:
            return
        sizes = {address: n_cells(model, address, run.reading) for address in missing}
        patterns = sum(4 * n for address, n in sizes.items() if address.endswith(PATTERN))
        as_bytes = patterns > EXACT and not exact
        n_bytes = sum(n if as_bytes and a.endswith(PATTERN) else 4 * n for a, n in sizes.items())
        if n_bytes > MAX_RECORD:
            raise UsageError(
                f"that would keep {n_bytes / 1e9:.1f} GB of this run, and at most {MAX_RECORD / 1e9:.1f} GB are kept; "
                "ask for fewer layers, or shorten the text"
            )
        work = operations(model, run.reading)
        seconds = work / self._rates.get(run.model, FIRST_RATE)
        if seconds > MAX_SECONDS:
            raise UsageError(
                f"that run would take about {seconds / 60:.0f} minutes on this machine, and at most "
                f"{MAX_SECONDS / 60:.0f} are allowed; shorten the text"
            )

        def keep(address: str, value: Tensor) -> Tensor:
            if as_bytes and address.endswith(PATTERN):
                return encode(value.float()).cpu()
            wide = value.float() if value.is_floating_point() else value
            # A copy of what is a view of more: the rest would be kept with it.
            return wide.detach().to("cpu").clone(memory_format=torch.contiguous_format)

        begun = time.perf_counter()
        values, grown = record(model, run.inputs(model), missing, keep, edits=run.edits(model), cancelled=cancelled)
        took = time.perf_counter() - begun
        if work >= TELLING:
            self._rates[run.model] = max(work / took, SLOWEST)
        with self._lock:
            for address in missing:
                value = values[address]
                (run.codes if value.dtype == torch.uint8 else run.values)[address] = value
            if not run.spent.ms:
                run.spent = Spent(1000 * took, grown)

    def _trim(self, used: Run) -> None:
        """Let go of runs, and then of the oldest values of this one, until all fits."""
        with self._lock:
            total = sum(run.n_bytes for run in self._runs.values())
            for run_id in [run_id for run_id in self._runs if run_id != used.id]:
                if total <= self.max_bytes:
                    return
                total -= self._runs.pop(run_id).n_bytes
            while total > self.max_bytes and len(used.values) > 1:
                _, value = used.values.popitem(last=False)
                total -= value.nbytes


def _finals(model: Transformer) -> list[str]:
    """The finished streams, which are kept of every run: what is predicted is read from them."""
    return [address for address in catalogue(model) if address.rpartition(".")[2] == "final"]


def _id_of(model_id: str, stamp: int, reading: Reading, ablate: Sequence[Ablation]) -> str:
    """The hash of all that decides what a run's numbers are."""
    inputs: Mapping[str, Tensor] = reading.inputs
    said = {
        "model": [model_id, stamp],
        "inputs": {name: hashlib.sha256(value.numpy().tobytes()).hexdigest() for name, value in inputs.items()},
        "ablate": [asdict(one) for one in ablate],
    }
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
