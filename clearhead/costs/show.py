"""A cost in the terminal: a few short tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from clearhead.costs.serving import LENGTHS, made_for
from clearhead.costs.shape import shape
from clearhead.costs.units import columns, digits, in_bytes, in_counts, in_dollars, in_flops, in_rate, in_seconds

if TYPE_CHECKING:
    from clearhead.costs.cost import Cost
    from clearhead.costs.scaling import Allocation
    from clearhead.costs.service import Service

Row = Sequence[str]
STRETCH = 16
"""No more than so many times the length that a model was made for is of interest."""


def print_cost(cost: Cost, console: Console | None = None) -> None:
    """All of a cost, as wide as it takes."""
    console = console or Console()
    end = made_for(cost.counts)
    console.print(Text(cost.name, "bold"), soft_wrap=True)
    made = "" if end is None else f", made for {end:,} tokens"
    console.print(Text(shape(cost.counts.config) + made), soft_wrap=True)
    print_rows(console, f"Parameters  {in_counts(cost.parameters)}", _parameters(cost), {1, 2})
    texts = "one text" if cost.ask.batch == 1 else f"{cost.ask.batch:,} texts"
    print_rows(console, f"Memory  {texts} of {cost.ask.context:,} tokens, {cost.ask.dtype}", _memory(cost), {1})
    print_rows(console, "Operations", _operations(cost), {1, 2, 3, 4})
    if cost.memory is not None and cost.writes:
        print_rows(console, f"In {in_bytes(cost.memory)}", _room(cost), {1})
    if cost.service is not None:
        print_rows(console, f"{cost.service.device.name}, {_at_best(cost.service)}", _service(cost.service), {1, 2})
        if cost.ask.price_per_hour is not None:
            heading = f"At {in_dollars(cost.ask.price_per_hour)} an hour, a million tokens"
            print_rows(console, heading, _prices(cost.service), {1})


def print_allocations(allocations: Sequence[Allocation], flops: float, console: Console | None = None) -> None:
    """What laws of scaling would do with a budget."""
    rows = [("", "parameters", "tokens", "tokens each", "loss", "")]
    rows += [
        (
            found.law,
            in_counts(found.parameters),
            in_counts(found.tokens),
            digits(found.tokens / found.parameters),
            "" if found.loss is None else f"{found.loss:.3f}",
            found.source,
        )
        for found in allocations
    ]
    print_rows(console or Console(), f"To train with {in_flops(flops)}", rows, {1, 2, 3, 4})


def print_rows(console: Console, title: str, rows: Iterator[Row] | Sequence[Row], right: set[int]) -> None:
    """Aligned columns under a title."""
    console.print()
    console.print(Text(title, "bold"), soft_wrap=True)
    for line in columns(list(rows), right):
        console.print(Text(line), soft_wrap=True)


def _parameters(cost: Cost) -> Iterator[Row]:
    found = cost.counts.parameters
    for part, n in found.parts.items():
        yield part, f"{n:,}", f"{n / found.total:.1%}"
    yield "total", f"{found.total:,}", ""
    if found.active != found.total:
        yield "active for a token", f"{found.active:,}", f"{found.active / found.total:.1%}"


def _memory(cost: Cost) -> Iterator[Row]:
    ask, counted = cost.ask, cost.counts
    yield "weights", in_bytes(cost.weight_bytes), ""
    if cost.writes:
        state = counted.state(ask.batch, ask.context, ask.width)
        kinds = ", ".join(kind for kind, size in state.kinds.items() if size)
        less = state.multi_head_total / state.total
        as_heads = f"; multi-head attention would take {digits(less)} x" if less > 1.005 else ""
        yield "state", in_bytes(state.total), f"{state.per_token:,} bytes a token of a text ({kinds}){as_heads}"
        end = made_for(counted)
        for n in _others(cost):
            beyond = " (more than it was made for)" if end is not None and n > end else ""
            yield "", in_bytes(cost.state_at(n)), f"at {n:,} tokens{beyond}"
        where = cost.outweighs
        if where is not None:
            yield "", "", f"more than the weights from {where:,} tokens on"
    if cost.traffic.standard:
        tiled = f"{in_bytes(cost.traffic.tiled)} in tiles that fit {in_bytes(ask.fast_memory)}"
        yield "attention", in_bytes(cost.traffic.standard), f"moved in a pass over one text; {tiled}"
    kept, again = cost.activations
    yield "training", in_bytes(cost.training.total + kept), f"in float32 with {cost.learning.optimiser}, of which"
    yield "", in_bytes(cost.training.total), "weights, gradients and optimiser"
    yield "", in_bytes(kept), f"activations; {in_bytes(again)} where blocks are recomputed"
    if cost.per_rank is not None:
        how, each = cost.learning, cost.per_rank
        gathered = f", {in_bytes(each.gathered)} of it gathered for a while" if each.gathered else ""
        processes = " x ".join(str(n) for n in (how.shard, how.tensor) if n > 1)
        yield "", in_bytes(each.total), f"on each of {processes} processes, without activations{gathered}"


def _others(cost: Cost) -> list[int]:
    """Lengths at which the state is told too: none where it is the same at any."""
    end = made_for(cost.counts)
    if cost.counts.state(1, 1, 1).growth == 0:
        return []
    return [n for n in LENGTHS if n != cost.ask.context and n <= STRETCH * (end or n)]


def _operations(cost: Cost) -> Iterator[Row]:
    ask = cost.ask
    yield "", "linear", "quadratic", "total", "by 2 N D, 6 N D"
    whole = f"{ask.batch * ask.context:,} tokens"
    names = {"read": f"a pass over {whole}", "write": "one more token of each text", "train": f"training on {whole}"}
    for name, flops in cost.flops.items():
        yield names[name], *map(in_flops, (flops.linear, flops.quadratic, flops.total, flops.rule))


def _room(cost: Cost) -> Iterator[Row]:
    end = made_for(cost.counts)
    found, texts = cost.longest, "the text" if cost.ask.batch == 1 else f"each of {cost.ask.batch:,} texts"
    if found == 0:
        yield "", in_bytes(cost.weight_bytes), "of weights alone do not fit"
    elif found is None:
        yield "", "any length", f"of {texts}"
    else:
        beyond = f", and {end:,} is what it was made for" if end is not None and found > end else ""
        yield "", f"{found:,} tokens", f"of {texts} at most{beyond}"


def _at_best(service: Service) -> str:
    device, dtype = service.device, service.ask.dtype
    measured = "" if device.reached is None else f" ({in_rate(device.reached)} of it in products)"
    return (
        f"at best {in_flops(device.peak(dtype))}/s and {in_rate(device.bandwidth)}{measured}: "
        f"{digits(device.balance(dtype))} operations a byte"
    )


def _service(service: Service) -> Iterator[Row]:
    ask = service.ask
    if not service.fits:
        yield "does not fit", "", "", "the times below are as if it did"
    found = service.reading
    n_read = ask.batch * ask.context
    yield (
        f"reading {n_read:,} tokens",
        in_seconds(found.seconds),
        f"{digits(n_read / found.seconds)} tokens/s",
        f"waits for {found.limit}: {digits(found.load.intensity)} operations a byte",
    )
    if not service.writes:
        return
    for texts in dict.fromkeys((ask.batch, service.users or ask.batch)):
        step = service.writing(texts)
        bound = "" if step.expected is None else f"; {in_seconds(step.bound.seconds)} at best"
        yield (
            f"writing, {texts:,} at once",
            in_seconds(step.seconds),
            f"{digits(step.tokens_per_second)} tokens/s",
            f"waits for {step.bound.limit}: {digits(step.bound.load.intensity)} operations a byte{bound}",
        )
    if service.users is not None:
        yield f"users of {ask.context:,} tokens", f"{service.users:,}", "", "have room at once"
    saved = service.reading.seconds - service.reading_rest.seconds
    each = service.counts.state(1, ask.kept, ask.width).total
    yield f"a kept prompt of {ask.kept:,}", in_seconds(saved), "", f"saved each time, for {in_bytes(each)} of state"


def _prices(service: Service) -> Iterator[Row]:
    yield "read", in_dollars(service.price_in()), ""
    if not service.writes:
        return
    for texts in dict.fromkeys((service.ask.batch, service.users or service.ask.batch)):
        yield "written", in_dollars(service.price_out(texts)), f"{texts:,} at once"
    yield "a kept prompt", in_dollars(service.price_saved()), "saved each time"
