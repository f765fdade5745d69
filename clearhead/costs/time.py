"""How long work takes at least: what it computes over the peak, or what it reads over the bandwidth, whichever is more
(Williams 2009, the roofline). No machine reaches both, and none is faster.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from clearhead.config import RecurrentConfig, TransformerConfig
from clearhead.costs.count import Counts
from clearhead.costs.devices import Device
from clearhead.costs.names import EMBEDDING, HEADS
from clearhead.costs.weights import Weight
from clearhead.ops.scan import chunk_size


@dataclass(frozen=True)
class Load:
    """What a piece of work asks of a device."""

    flops: int
    """Without what masks hide."""
    weight_bytes: float
    """Of the weights that it reads, each once; of experts, as many as so many tokens are expected to be sent to."""
    state_bytes: int
    """Of the state that it reads or writes."""

    @property
    def bytes(self) -> float:
        """All that moves."""
        return self.weight_bytes + self.state_bytes

    @property
    def intensity(self) -> float:
        """Operations a byte."""
        return self.flops / self.bytes


@dataclass(frozen=True)
class Bound:
    """The least seconds that a device takes for a load."""

    load: Load
    arithmetic: float
    """Seconds of computing at the peak."""
    memory: float
    """Seconds of reading at the full bandwidth."""

    @property
    def seconds(self) -> float:
        return max(self.arithmetic, self.memory)

    @property
    def limit(self) -> str:
        """What it waits for."""
        return "arithmetic" if self.arithmetic > self.memory else "memory"


def bound(load: Load, device: Device, dtype: str) -> Bound:
    """The roofline of a load.

    Raises:
        UsageError: the device has no peak for such numbers.
    """
    return Bound(load, load.flops / device.peak(dtype), load.bytes / device.bandwidth)


def expected(load: Load, device: Device) -> float | None:
    """Seconds for a load of few rows on a machine that was measured: its weights at the pace of this library's own
    products, its state at the bandwidth, and what a step takes beside; None where no pace was measured.
    """
    if device.reached is None:
        return None
    return load.weight_bytes / device.reached + load.state_bytes / device.bandwidth + device.overhead


def reading(counts: Counts, batch: int, tokens: int, width: int, *, kept: int = 0) -> Load:
    """A pass over `tokens` new tokens of each of `batch` texts, in numbers of `width` bytes, with logits of the last
    one alone. `kept`: so many tokens of each were read before, and their state is at hand.

    Raises:
        ClearheadError: a size below 1, or more tokens than the model was made for.
    """
    return Load(
        flops=counts.flops(batch, tokens, kept, last=1).needed,
        weight_bytes=width * weights_read(counts, batch * tokens),
        state_bytes=counts.state(batch, kept + tokens, width).total,
    )


def writing(counts: Counts, batch: int, context: int, width: int) -> Load:
    """One more token of each of `batch` texts, with which they have `context` tokens.

    Raises:
        ClearheadError: a size below 1, or more tokens than the model was made for.
    """
    return Load(
        flops=counts.flops(batch, 1, context - 1).needed if context > 1 else counts.flops(batch, 1).needed,
        weight_bytes=width * weights_read(counts, batch, with_source=False),
        state_bytes=counts.state(batch, context, width).total,
    )


def weights_read(counts: Counts, n_tokens: int, *, with_source: bool = True) -> float:
    """How many numbers of weights a pass over `n_tokens` reads. A table of vectors gives a row a token, which is next
    to nothing, unless it is the head too. Of E experts of which each token chooses k, E (1 - (1 - k / E)^n) are
    expected to be chosen, as by chance. with_source: the encoder beside a decoder is read too.
    """
    return sum(_share(weight, n_tokens) * weight.size for weight in read_weights(counts, with_source=with_source))


def read_weights(counts: Counts, *, with_source: bool = True) -> Iterable[Weight]:
    """The weights that a pass reads in full: all but tables of vectors; and the one of tokens where it is the head."""
    for weight in counts.weights:
        is_table = weight.part == EMBEDDING and len(weight.shape) == 2
        of_source = (weight.block or "").startswith("encoder")
        if not is_table and (with_source or not of_source):
            yield weight
    config = counts.config
    if isinstance(config, TransformerConfig) and config.heads.tokens is not None and config.heads.tokens.tie:
        table = next(w for w in counts.weights if w.part == EMBEDDING)
        yield replace(table, part=HEADS)


def _share(weight: Weight, n_tokens: int) -> float:
    """The share of a weight that so many tokens need."""
    if weight.chosen is None:
        return 1.0
    return 1 - (1 - weight.chosen / weight.shape[0]) ** n_tokens


def matrix_shapes(counts: Counts) -> dict[tuple[int, int], int]:
    """The matrices (out, in) that writing a token reads, and how many there are of each."""
    found: dict[tuple[int, int], int] = {}
    for weight in read_weights(counts, with_source=False):
        if len(weight.shape) >= 2 and weight.shape[-1] > 1:
            number = 1 if len(weight.shape) == 2 else weight.chosen or 1
            shape = weight.shape[-2], weight.shape[-1]
            found[shape] = found.get(shape, 0) + number
    return found


def sequential_steps(counts: Counts, tokens: int) -> int:
    """How many steps of a pass over a text wait for one another: one a layer of attention, however long the text, and
    in a scan as many as this library's chunks take, about 2 sqrt(T), and in a recurrent network one a token (Vaswani
    2017, table 1).
    """
    ops = [block.mixer.op for stack in counts.stacks for block in stack.blocks]
    in_scan = chunk_size(tokens) + -(-tokens // chunk_size(tokens))
    return sum(1 if hasattr(op, "mask") else tokens if isinstance(op, RecurrentConfig) else in_scan for op in ops)


def recurrent_steps(counts: Counts, tokens: int) -> int:
    """The same of a recurrent network of as many layers: one a token and layer (Vaswani 2017, table 1)."""
    return tokens * sum(len(stack.blocks) for stack in counts.stacks)
