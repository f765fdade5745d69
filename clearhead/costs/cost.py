"""`clearhead.cost`: what a model takes to hold, to run, to train and to serve, from its config alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.costs.asking import checked, device_for
from clearhead.costs.count import Counts, counts
from clearhead.costs.devices import GIB, Device
from clearhead.costs.flops import Flops
from clearhead.costs.memory import OptimiserName, TrainedBytes
from clearhead.costs.plain import plain_flops, plain_service
from clearhead.costs.service import Ask, Service
from clearhead.costs.serving import (
    LENGTHS,
    longest,
    made_for,
    outweighs,
    state_at,
    weight_bytes,
    writes,
)
from clearhead.costs.source import read_config
from clearhead.costs.time import recurrent_steps, sequential_steps
from clearhead.costs.traffic import Traffic
from clearhead.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from clearhead.costs.charts import Chart


@dataclass(frozen=True)
class Learning:
    """How it is trained: by an optimiser, on `shard` x `tensor` processes."""

    optimiser: OptimiserName = "adamw"
    shard: int = 1
    """So many share every weight (FSDP2)."""
    tensor: int = 1
    """So many share matrices: heads and hidden units."""


@dataclass(frozen=True)
class Cost:
    """What a model costs. It prints itself, and every number is in `to_json()`."""

    name: str
    counts: Counts
    ask: Ask
    device: Device | None = None
    memory: int | None = None
    """Bytes that it is to fit in: of the device where nothing else is said."""
    learning: Learning = Learning()

    # ---- what is asked most

    @property
    def parameters(self) -> int:
        return self.counts.parameters.total

    @property
    def weight_bytes(self) -> int:
        return weight_bytes(self.counts, self.ask.width)

    @property
    def state_bytes(self) -> int:
        """Of all texts of the batch."""
        return self.counts.state(self.ask.batch, self.ask.context, self.ask.width).total

    @property
    def tokens(self) -> int | None:
        """How the counts call the length asked about: None where it can be no other."""
        return None if self.counts.fixed_tokens is not None else self.ask.context

    @cached_property
    def flops(self) -> dict[str, Flops]:
        """Of reading the texts (with all their logits), writing one more token of each, and a step of training."""
        batch, context = self.ask.batch, self.ask.context
        found = {"read": self.counts.flops(batch, self.tokens)}
        if self.writes:
            found["write"] = self.counts.flops(batch, 1, context - 1) if context > 1 else self.counts.flops(batch, 1)
        return {**found, "train": self.counts.flops(batch, self.tokens, training=True)}

    @property
    def writes(self) -> bool:
        """Whether the model has a decoder."""
        return writes(self.counts)

    @cached_property
    def service(self) -> Service | None:
        """The model on the device; None where none was named."""
        return None if self.device is None else Service(self.counts, self.ask, self.device)

    @property
    def longest(self) -> int | None:
        """How long the texts of the batch can be in the memory; None where they have no end."""
        assert self.memory is not None
        return longest(self.counts, self.ask.batch, self.memory, self.ask.width)

    @property
    def outweighs(self) -> int | None:
        """The length from which the state takes more than the weights; None where that never comes."""
        return outweighs(self.counts, self.ask.batch, self.ask.width)

    def state_at(self, context: int) -> int:
        """Bytes of state of the batch at another length, even beyond what the model was made for."""
        return state_at(self.counts, self.ask.batch, context, self.ask.width)

    @cached_property
    def training(self) -> TrainedBytes:
        """Weights, gradients and optimiser in float32, of one process that has them all."""
        return self.counts.optimiser(self.learning.optimiser)

    @cached_property
    def per_rank(self) -> TrainedBytes | None:
        """The same on one of several processes; None where there is one."""
        how = self.learning
        alone = how.shard == how.tensor == 1
        return None if alone else self.counts.per_rank(how.shard, how.tensor, how.optimiser)

    @cached_property
    def activations(self) -> tuple[int, int]:
        """Bytes that a step of training in float32 keeps of the batch; and where blocks are recomputed."""
        asked = (self.ask.batch, self.tokens)
        return self.counts.activations(*asked).total, self.counts.activations(*asked, recompute=True).total

    @cached_property
    def traffic(self) -> Traffic:
        """What attention moves in a pass over one text."""
        return self.counts.attention_traffic(self.tokens, self.ask.fast_memory, self.ask.width)

    # ---- as a whole

    def to_json(self) -> dict[str, Any]:
        """Everything as plain values; bytes, seconds, operations and dollars."""
        from clearhead.costs.shape import shape

        batch, context, width = self.ask.batch, self.ask.context, self.ask.width
        found: dict[str, Any] = {
            "model": self.name,
            "shape": shape(self.counts.config),
            "made_for": made_for(self.counts),
            **asdict(self.ask),
            "sequential_steps": sequential_steps(self.counts, context),
            "recurrent_steps": recurrent_steps(self.counts, context),
            "parameters": asdict(self.counts.parameters),
            "flops": {name: plain_flops(flops) for name, flops in self.flops.items()},
            "weight_bytes": self.weight_bytes,
            "attention_traffic": asdict(self.traffic),
            "training": {
                **asdict(self.learning),
                "bytes": asdict(self.training),
                "bytes_per_rank": None if self.per_rank is None else asdict(self.per_rank),
                "activations": self.activations[0],
                "activations_recomputed": self.activations[1],
            },
        }
        if self.writes:
            found["state"] = {
                **asdict(self.counts.state(batch, context, width)),
                "at": {n: self.state_at(n) for n in LENGTHS},
                "outweighs_weights_from": self.outweighs,
            }
            if self.memory is not None:
                found["memory"] = {"bytes": self.memory, "longest": self.longest}
        if self.service is not None:
            found["device"] = plain_service(self.service)
        return found

    def print(self, console: Console | None = None) -> None:
        """Tables in the terminal."""
        from clearhead.costs.show import print_cost

        print_cost(self, console)

    def charts(self) -> tuple[Chart, ...]:
        """Costs against the length of the texts."""
        from clearhead.costs.compare import Comparison

        return Comparison((self,)).charts()

    def save(self, path: str | Path) -> Path:
        """Write `charts()` as .svg or .png, by the file's ending; other endings are a UsageError."""
        from clearhead.costs.charts import save

        return save(self.charts(), path)


def cost(
    source: Any,
    *,
    context: int | None = None,
    batch: int = 1,
    dtype: str = "bfloat16",
    device: str | Device | None = None,
    devices: int | None = None,
    memory: float | None = None,
    price_per_hour: float | None = None,
    kept: int | None = None,
    fast_memory: float | None = None,
    optimiser: OptimiserName = "adamw",
    shard: int = 1,
    tensor: int = 1,
    rope: Mapping[str, Any] | None = None,
) -> Cost:
    """What a model costs, from its config: no weights are read or allocated.

    Args:
        source: a model, a config, or where one is: a folder, a config.json, a .gguf file, a published model's name such
            as "llama3-70b", a family's name, a Hub id.
        context: tokens of each text; what the model was made for if not given.
        batch: texts at once.
        dtype: of weights and state: float32, bfloat16, float16, float8 or int8.
        device: an accelerator by name, or "here", which measures this machine in seconds.
        devices: how many of them; the fewest that hold weights and state if not given.
        memory: GiB that weights and state are to fit in; the device's if not given.
        price_per_hour: dollars for all devices together.
        kept: tokens at the beginning of a prompt whose state is kept from before; all of it if not given.
        fast_memory: KiB that tiles of attention are to fit in; 192 if not given, as in an A100's multiprocessor.
        optimiser: what training moves the weights by: adamw, muon or adafactor.
        shard: so many processes share every weight in training (FSDP2).
        tensor: times so many that share matrices.
        rope: another scaling of rotary positions, for longer texts, as in `clearhead.load`.

    Raises:
        ClearheadError: the source is not found or not understood.
        UsageError: a size, a dtype or a device that there is not, or more tokens than the model was made for.
    """
    named = read_config(source, rope)
    counted = counts(named.config)
    ask = checked(named.name, counted, context, batch, dtype, kept, price_per_hour)
    if fast_memory is not None:
        ask = replace(ask, fast_memory=int(fast_memory * 2**10))
    learning = Learning(optimiser, shard, tensor)
    # What can't be counted shows before anything is measured.
    counted.per_rank(shard, tensor, optimiser)
    counted.attention_traffic(None if counted.fixed_tokens is not None else ask.context, ask.fast_memory, ask.width)
    if memory is not None and not memory > 0:
        raise UsageError(f"memory is {memory:g} GiB; it must be more than 0")
    if devices is not None and (devices < 1 or device is None):
        raise UsageError(f"devices is {devices}; it is how many of a device there are, 1 or more: name one too")
    found = None if device is None else device_for(device, devices, counted, ask)
    room = int(memory * GIB) if memory is not None else None if found is None else found.memory
    return Cost(named.name, counted, ask, found, room, learning)
