"""Several models side by side, and their costs against the length of the texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.costs.asking import USUAL
from clearhead.costs.charts import Chart, save
from clearhead.costs.cost import Cost, cost
from clearhead.costs.count import counts
from clearhead.costs.curves import Axes, Curve
from clearhead.costs.serving import made_for
from clearhead.costs.source import read_config
from clearhead.costs.units import columns, digits, in_bytes, in_counts, in_dollars, in_flops, in_seconds

if TYPE_CHECKING:
    from rich.console import Console

POINTS = 33
"""Lengths at which a curve is worked out."""
SHORTEST = 128
LONGEST = 131072
"""The last length of a model that was made for any."""


def compare(sources: Sequence[Any], *, context: int | None = None, **asked: Any) -> Comparison:
    """The costs of several models, by what `cost` takes. If no context is given, it is the longest that all of them
    were made for; one that reads pictures or sound reads what it was made for.

    Raises:
        ClearheadError, UsageError: as `cost`.
    """
    rope = asked.get("rope")
    counted = [counts(read_config(source, rope).config) for source in sources]
    fixed = [one.fixed_tokens is not None for one in counted]
    ends = [end for one, is_fixed in zip(counted, fixed, strict=True) if not is_fixed and (end := made_for(one))]
    shared = context if context is not None else min(ends, default=USUAL)
    pairs = zip(sources, fixed, strict=True)
    return Comparison(tuple(cost(one, context=context if is_fixed else shared, **asked) for one, is_fixed in pairs))


@dataclass(frozen=True)
class Comparison:
    """The costs of several models, asked alike."""

    costs: tuple[Cost, ...]

    def to_json(self) -> dict[str, Any]:
        return {"models": [one.to_json() for one in self.costs]}

    def print(self, console: Console | None = None) -> None:
        """A row a cost, a column a model."""
        from rich.console import Console
        from rich.text import Text

        console = console or Console()
        rows = [("", *(one.name for one in self.costs)), *((name, *cells) for name, cells in self.rows())]
        for number, line in enumerate(columns(rows, range(1, len(self.costs) + 1))):
            console.print(Text(line, "" if number else "bold"), soft_wrap=True)

    def rows(self) -> Iterator[tuple[str, Sequence[str]]]:
        """What is told of every model, in words; what none of them has is left out."""
        told = [dict(_told(one)) for one in self.costs]
        for name in dict.fromkeys(name for one in told for name in one):
            yield name, [one.get(name, "-") for one in told]

    def charts(self) -> tuple[Chart, ...]:
        """Memory against the length, and where there is a device, how fast is written."""
        lengths = [self._lengths(one) for one in self.costs]
        batch = self.costs[0].ask.batch
        texts = "one text" if batch == 1 else f"{batch:,} texts"
        curves = []
        for one, ns in zip(self.costs, lengths, strict=True):
            alone = len(self.costs) == 1
            if one.writes:
                states = [(n, one.state_at(n)) for n in ns]
                curves.append(Curve(f"state of {texts}" if alone else f"{one.name}, state", states))
            if alone or not one.writes:
                name = "weights" if alone else f"{one.name}, weights"
                curves.append(Curve(name, [(n, one.weight_bytes) for n in ns]))
        axes = Axes(in_bytes, "{:,.0f}".format, "tokens", from_zero=False, log_x=True, log_y=True, sizes=True)
        found = [Chart(f"Memory, {self.costs[0].ask.dtype}", tuple(curves), axes)]
        written = [
            Curve(one.name, [(n, _rate(one, n)) for n in ns])
            for one, ns in zip(self.costs, lengths, strict=True)
            if one.service is not None and one.writes
        ]
        if written:
            axes = Axes(digits, "{:,.0f}".format, "tokens", log_x=True, log_y=len(written) > 1)
            device = next(one.device.name for one in self.costs if one.device is not None)
            found.append(Chart(f"Tokens a second, {texts} at once, {device}", tuple(written), axes))
        return tuple(found)

    def save(self, path: str | Path) -> Path:
        """Write `charts()` as .svg or .png, by the file's ending; other endings are a UsageError."""
        return save(self.charts(), path)

    @staticmethod
    def _lengths(one: Cost) -> list[int]:
        end = made_for(one.counts) or max(LONGEST, one.ask.context)
        start = min(SHORTEST, max(1, end // 8))
        return sorted({round(start * (end / start) ** (i / (POINTS - 1))) for i in range(POINTS)})


def _rate(cost: Cost, context: int) -> float:
    """Tokens a second that are written of texts of another length."""
    assert cost.service is not None
    ask = replace(cost.ask, context=context, kept=min(cost.ask.kept, context))
    return replace(cost.service, ask=ask).writing(ask.batch).tokens_per_second


def _told(cost: Cost) -> Iterator[tuple[str, str]]:
    parameters, ask = cost.counts.parameters, cost.ask
    yield "parameters", in_counts(parameters.total)
    yield "active for a token", in_counts(parameters.active)
    yield "made for", "any length" if (end := made_for(cost.counts)) is None else f"{end:,} tokens"
    yield "asked about", f"{ask.batch:,} x {ask.context:,} tokens"
    yield f"weights, {ask.dtype}", in_bytes(cost.weight_bytes)
    if cost.writes:
        state = cost.counts.state(ask.batch, ask.context, ask.width)
        yield "state", in_bytes(state.total)
        yield "state, bytes a token", f"{state.per_token:,}"
        yield "as multi-head", in_bytes(state.multi_head_total)
        where = cost.outweighs
        yield "state outweighs weights", "never" if where is None else f"from {where:,}"
    yield "a pass, operations", in_flops(cost.flops["read"].total)
    if "write" in cost.flops:
        yield "one more token, operations", in_flops(cost.flops["write"].total)
    yield "training, operations", in_flops(cost.flops["train"].total)
    yield "training, memory", in_bytes(cost.training.total + cost.activations[0])
    if cost.memory is not None and cost.writes:
        yield "memory", in_bytes(cost.memory)
        yield "the longest text in it", "any" if (n := cost.longest) is None else f"{n:,}"
    if cost.service is not None:
        yield from _served(cost)


def _served(cost: Cost) -> Iterator[tuple[str, str]]:
    service = cost.service
    assert service is not None
    yield "device", service.device.name
    yield "reading", in_seconds(service.reading.seconds)
    if not service.writes:
        return
    step = service.writing(cost.ask.batch)
    yield f"writing, {cost.ask.batch:,} at once", f"{digits(step.tokens_per_second)} tokens/s"
    yield "users", "any number" if service.users is None else f"{service.users:,}"
    if service.users:
        yield "writing for all", f"{digits(service.writing(service.users).tokens_per_second)} tokens/s"
    if cost.ask.price_per_hour is not None:
        yield "a million read", in_dollars(service.price_in())
        yield "a million written", in_dollars(service.price_out(service.users or cost.ask.batch))
