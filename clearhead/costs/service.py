"""A model on a device: how fast it reads and writes at best, for how many, and at what price."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from clearhead.costs.count import Counts
from clearhead.costs.devices import Device, bytes_of
from clearhead.costs.serving import price_per_million, users, weight_bytes, writes
from clearhead.costs.time import Bound, bound, expected, reading, writing


@dataclass(frozen=True)
class Ask:
    """What is asked: texts of so many tokens, so many at once, in numbers of a dtype."""

    context: int
    batch: int = 1
    dtype: str = "bfloat16"
    kept: int = 0
    """So many tokens at the beginning of every text are the same, and their state is kept."""
    price_per_hour: float | None = None
    """Of the device, or of all of them."""
    fast_memory: int = 192 * 2**10
    """Bytes that attention's tiles are to fit in: those of an A100's multiprocessor (Dao 2022, section 2.1)."""

    @property
    def width(self) -> int:
        """Bytes of a number."""
        return bytes_of(self.dtype)


@dataclass(frozen=True)
class Writing:
    """One step of writing a token of each of several texts."""

    texts: int
    bound: Bound
    expected: float | None
    """Seconds on a machine that was measured."""

    @property
    def seconds(self) -> float:
        """What is expected where something is, and the bound otherwise."""
        return self.bound.seconds if self.expected is None else max(self.expected, self.bound.arithmetic)

    @property
    def tokens_per_second(self) -> float:
        """Of all texts together."""
        return self.texts / self.seconds


@dataclass(frozen=True)
class Service:
    """What a device gives. Times are bounds, and no machine is faster; those of writing on a machine that was measured
    are what is expected.
    """

    counts: Counts
    ask: Ask
    device: Device

    @cached_property
    def reading(self) -> Bound:
        """The whole text of every row, from nothing to the first new token."""
        return self._read(self.ask.context)

    @cached_property
    def reading_rest(self) -> Bound:
        """What is left to read where the beginning is kept; one token at least, which gives the first new one."""
        kept = min(self.ask.kept, self.ask.context - 1)
        return self._read(self.ask.context - kept, kept)

    def _read(self, tokens: int, kept: int = 0) -> Bound:
        load = reading(self.counts, self.ask.batch, tokens, self.ask.width, kept=kept)
        return bound(load, self.device, self.ask.dtype)

    @property
    def writes(self) -> bool:
        """Whether the model has a decoder."""
        return writes(self.counts)

    def writing(self, texts: int) -> Writing:
        """The last step of so many texts, in which each comes to its full length. What a machine reached was measured
        for the texts of the batch, and for another number there is the bound alone.
        """
        load = writing(self.counts, texts, self.ask.context, self.ask.width)
        measured = expected(load, self.device) if texts == self.ask.batch else None
        return Writing(texts, bound(load, self.device, self.ask.dtype), measured)

    @cached_property
    def users(self) -> int | None:
        """How many texts of that length the device has room for; None where they keep nothing."""
        return users(self.counts, self.ask.context, self.device.memory, self.ask.width)

    @property
    def fits(self) -> bool:
        """Whether weights and the states of the batch do."""
        state = self.counts.state(self.ask.batch, self.ask.context, self.ask.width).total
        return weight_bytes(self.counts, self.ask.width) + state <= self.device.memory

    def price_in(self) -> float:
        """Of a million tokens that are read."""
        n_read = self.ask.batch * self.ask.context
        return price_per_million(self.reading.seconds, n_read, self.ask.price_per_hour or 0)

    def price_out(self, texts: int) -> float:
        """Of a million tokens that are written, for so many texts at once."""
        return price_per_million(self.writing(texts).seconds, texts, self.ask.price_per_hour or 0)

    def price_saved(self) -> float:
        """By what is kept of a prompt, each time that a text of the batch goes on from it."""
        saved = self.reading.seconds - self.reading_rest.seconds
        return saved / self.ask.batch * (self.ask.price_per_hour or 0) / 3600
