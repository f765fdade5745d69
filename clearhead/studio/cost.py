"""The page of costs: what `clearhead cost` says, asked from a browser."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field

from clearhead.config import TransformerConfig
from clearhead.costs.asking import MEASURED
from clearhead.costs.compare import Comparison
from clearhead.costs.cost import Cost
from clearhead.costs.count import Counts
from clearhead.costs.devices import HERE, Device, devices
from clearhead.costs.machine import this_machine
from clearhead.costs.serving import made_for
from clearhead.costs.time import Bound, recurrent_steps, sequential_steps
from clearhead.studio.lesson.scale.terms import shapes_of, terms_of, traffic_of
from clearhead.studio.operations import Answer, operation
from clearhead.studio.presets import costed, counts_of, groupings, heads_of, published, source_code, source_of

if TYPE_CHECKING:
    from clearhead.studio.context import Studio

Name = Annotated[str, Field(min_length=1, max_length=80)]
Context = Annotated[int, Field(ge=0, le=2**27)]
Batch = Annotated[int, Field(ge=1, le=2**20)]
Dtype = Literal["float32", "bfloat16", "float16", "float8", "int8"]
KvHeads = Annotated[int, Field(ge=0, le=1024)]
DeviceName = Annotated[str, Field(max_length=40)]
Many = Annotated[int, Field(ge=0, le=2**20)]
Dollars = Annotated[float, Field(ge=0, le=1e9)]


@operation("cost.choices")
def choices(studio: Studio) -> Answer:
    """What can be asked about: published configs, models of this machine, and devices."""
    mine = [id for id in studio.models.ids() if id not in published()]
    return Answer(
        data={
            "published": list(published()),
            "machine": mine,
            "devices": [
                {"key": one.key, "name": one.name, "memory": one.memory, "dtypes": list(one.peaks)}
                for one in devices().values()
            ],
        }
    )


@operation("cost.model")
def model(
    studio: Studio,
    *,
    preset: Name = "llama3-70b",
    context: Context = 8192,
    batch: Batch = 1,
    dtype: Dtype = "bfloat16",
    kv_heads: KvHeads = 0,
    device: DeviceName = "",
    n_devices: Many = 0,
    price: Dollars = 0.0,
    kept: Context = 0,
    optimiser: Literal["adamw", "muon", "adafactor"] = "adamw",
    shard: Annotated[int, Field(ge=1, le=2**16)] = 1,
    tensor: Annotated[int, Field(ge=1, le=2**10)] = 1,
) -> Answer | Iterator[Answer]:
    """Everything that one model costs. 0 stands for what is usual: the length a model was made for, as many key-value
    heads as it has, as few devices as hold it, no price, all of the prompt kept.
    """
    source = source_of(studio, preset)
    asked = _asked(context, batch, dtype, device, n_devices, price, kept, optimiser, shard, tensor)
    return _answered(device, lambda: _told(preset, source, kv_heads, asked))


def _answered(device: str, answer: Callable[[], Answer]) -> Answer | Iterator[Answer]:
    """At once; or as what takes long, where this machine is to be measured."""
    return _slowly(answer) if device == HERE else answer()


def _slowly(answer: Callable[[], Answer]) -> Iterator[Answer]:
    yield answer()


def _told(preset: str, source: str, kv_heads: int, asked: dict[str, Any]) -> Answer:
    found = _found(source, kv_heads, asked)
    numbers = list(_numbers(found))
    config = counts_of(source).config
    published_heads = heads_of(config)
    as_is = kv_heads == 0 or (published_heads is not None and kv_heads == published_heads[1])
    return Answer(
        data={
            **found.to_json(),
            **_ingredients(found),
            "model": preset,
            "writes": found.writes,
            "active": found.counts.parameters.active,
            "groupings": groupings(config),
            "heads": published_heads,
            "kv_heads": kv_heads or (published_heads[1] if published_heads else None),
            "fixed": found.counts.fixed_tokens is not None,
            "printed": {name: i for i, (name, _, _) in enumerate(numbers)},
            "all_bytes": found.training.total,
            "all_bytes_per_rank": None if found.per_rank is None else found.per_rank.total,
            "processes": found.learning.shard * found.learning.tensor,
            "quadratic": {name: flops.quadratic / flops.total for name, flops in found.flops.items()},
            "shares": {part: n / found.parameters for part, n in found.counts.parameters.parts.items()},
            "curves": _curves(found),
            "command": _command(source, asked) if as_is else None,
        },
        python=_code(source, 0 if as_is else kv_heads, asked, [(name, code) for name, code, _ in numbers]),
        printed=tuple(value for _, _, value in numbers),
    )


def _ingredients(found: Cost) -> dict[str, Any]:
    """What the numbers of the page are made of, to be put into their formulas."""
    of, ask = found.counts, found.ask
    parts = [of.activations(ask.batch, found.tokens, recompute=again).parts for again in (False, True)]
    return {
        "width": ask.width,
        "idle": of.parameters.total - of.parameters.active,
        "terms": terms_of(of, ask.batch, ask.context, ask.width),
        "tensors": shapes_of(of),
        "activation_parts": parts[0],
        "recomputed_parts": parts[1],
        "traffic": traffic_of(of, found.tokens, ask.fast_memory // ask.width),
        "per_text": of.state(1, ask.context, ask.width).total,
        "rest": None if found.service is None else plain_bound(found.service.reading_rest),
    }


def plain_bound(bound: Bound) -> dict[str, Any]:
    """The least seconds of a piece of work, and what they come from."""
    load = bound.load
    return {"seconds": bound.seconds, "waits_for": bound.limit, "flops": load.flops, "bytes": load.bytes}


def _asked(
    context: int,
    batch: int,
    dtype: str,
    on: str,
    n_devices: int,
    price: float,
    kept: int,
    optimiser: str,
    shard: int,
    tensor: int,
) -> dict[str, Any]:
    """The keywords of `clearhead.cost`, without those that are as usual."""
    asked = {
        "context": context or None,
        "batch": batch,
        "dtype": dtype,
        "device": on or None,
        "devices": (n_devices or None) if on and on != HERE else None,
        "price_per_hour": (price or None) if on else None,
        "kept": kept or None,
        "optimiser": optimiser,
        "shard": shard,
        "tensor": tensor,
    }
    usual = {"batch": 1, "dtype": "bfloat16", "optimiser": "adamw", "shard": 1, "tensor": 1}
    return {name: value for name, value in asked.items() if value is not None and value != usual.get(name)}


def _found(source: str, kv_heads: int, asked: Mapping[str, Any]) -> Cost:
    of, words = counts_of(source, kv_heads), dict(asked)
    if words.get("device") == HERE and (dtype := words.get("dtype", "bfloat16")) in MEASURED:
        words |= {"device": _here(of, dtype, words.get("batch", 1)), "devices": 1}
    return costed(source, of, **words)


@lru_cache(maxsize=16)
def _here(of: Counts, dtype: str, batch: int) -> Device:
    """This machine, which takes seconds to measure: it is done once for all lengths."""
    return this_machine(dtype, of, batch)


def _numbers(found: Cost) -> Iterator[tuple[str, str, float]]:
    """The numbers that the page shows first: a name, the code that gives it, and its value."""
    yield "parameters", "cost.parameters", found.parameters
    yield "active", "cost.counts.parameters.active", found.counts.parameters.active
    yield "weights", "cost.weight_bytes", found.weight_bytes
    if found.writes:
        ask = found.ask
        per_token = "cost.counts.state(1, 1, cost.ask.width).per_token"
        yield "per_token", per_token, found.counts.state(1, 1, ask.width).per_token
        yield "state", "cost.state_bytes", found.state_bytes
    for name, flops in found.flops.items():
        yield f"flops_{name}", f"cost.flops[{name!r}].total", flops.total
    yield "traffic_standard", "cost.traffic.standard", found.traffic.standard
    yield "traffic_tiled", "cost.traffic.tiled", found.traffic.tiled
    yield "training", "cost.training.total", found.training.total
    yield "activations", "cost.activations[0]", found.activations[0]
    yield "recomputed", "cost.activations[1]", found.activations[1]
    service = found.service
    if service is None or service.device.key == HERE:
        return  # what is measured comes out otherwise each time
    yield "reading", "cost.service.reading.seconds", service.reading.seconds
    if service.writes:
        batch = found.ask.batch
        step = service.writing(batch)
        yield "writing", "cost.service.writing(cost.ask.batch).seconds", step.seconds
        yield "rate", "cost.service.writing(cost.ask.batch).tokens_per_second", step.tokens_per_second
        if service.users is not None:
            yield "users", "cost.service.users", service.users
    if found.ask.price_per_hour is not None:
        yield "price_read", "cost.service.price_in()", service.price_in()
        if service.writes:
            yield "price_written", "cost.service.price_out(cost.ask.batch)", service.price_out(found.ask.batch)


def _code(source: str, kv_heads: int, asked: dict[str, Any], numbers: list[tuple[str, str]]) -> str:
    before, what = source_code(source, kv_heads)
    words = "".join(f", {name}={value!r}" for name, value in asked.items())
    lines = "\n".join(f'print("{name.replace("_", " ")}:", {code})' for name, code in numbers)
    return f"import clearhead\n{before}\ncost = clearhead.cost({what}{words})\n{lines}\n"


def _command(source: str, asked: dict[str, Any]) -> str:
    words = ["clearhead", "cost", source]
    for name, value in asked.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def _curves(found: Cost) -> dict[str, Any]:
    """What changes with the length of the texts: the state beside the weights, and how many steps wait for one
    another.
    """
    curves: dict[str, Any] = {"memory": _memory(replace(found, device=None))}
    if isinstance(found.counts.config, TransformerConfig) and found.counts.fixed_tokens is None:
        n = [round(x) for x in curves["memory"][0]["x"]]
        steps = [sequential_steps(found.counts, one) for one in n]
        recurrent = [recurrent_steps(found.counts, one) for one in n]
        curves["steps"] = [
            {"name": "this model", "x": n, "y": steps},
            {"name": "a recurrent network as deep", "x": n, "y": recurrent},
        ]
    return curves


def _memory(found: Cost) -> list[dict[str, Any]]:
    """The library's own chart of memory, as plain curves."""
    chart = Comparison((found,)).charts()[0]
    return [_with_context(found, one.name, list(one.points)) for one in chart.curves]


def _with_context(found: Cost, name: str, points: list[tuple[float, float]]) -> dict[str, Any]:
    """A curve with a point more, at the length that was asked about."""
    here = found.weight_bytes if name.endswith("weights") else found.state_bytes
    all_points = sorted({**dict(points), found.ask.context: here}.items())
    return {"name": name, "x": [x for x, _ in all_points], "y": [y for _, y in all_points]}


# ---- several


@operation("cost.compare")
def compare(
    studio: Studio,
    *,
    presets: Annotated[list[Name], Field(min_length=1, max_length=6)] = ["llama3-70b", "mixtral-8x7b", "mamba-2.8b"],  # noqa: B006
    context: Context = 0,
    batch: Batch = 1,
    dtype: Dtype = "bfloat16",
    device: DeviceName = "",
    price: Dollars = 0.0,
) -> Answer | Iterator[Answer]:
    """Several models asked alike; one that was made for shorter texts is asked about its own length."""
    names = list(dict.fromkeys(presets))
    sources = [source_of(studio, name) for name in names]
    return _answered(device, lambda: _compared(names, sources, _Asked(context, batch, dtype, device, price)))


class _Asked(NamedTuple):
    """What all models are asked."""

    context: int
    batch: int
    dtype: str
    device: str
    price: float


def _compared(names: list[str], sources: list[str], ask: _Asked) -> Answer:
    rows, curves = [], []
    for name, source in zip(names, sources, strict=True):
        found = _as_long_as_it_can(source, ask)
        rows.append({"name": name, **_row(found)})
        curves.append({**_memory(replace(found, device=None))[0], "name": name})
    asked = _asked(0, ask.batch, ask.dtype, ask.device, 0, ask.price, 0, "adamw", 1, 1)
    lengths = [row["context"] for row in rows]
    return Answer(
        data={
            "rows": rows,
            "curves": curves,
            "context": ask.context,
            "command": _compare_command(sources, ask.context, asked),
        },
        python=_COMPARE.format(
            pairs=", ".join(f"({source!r}, {n})" for source, n in zip(sources, lengths, strict=True)),
            words="".join(f", {name}={value!r}" for name, value in asked.items()),
        ),
        printed=tuple(float(row[key]) for row in rows for key in ("parameters", "active", "weights", "state", "read")),
    )


_COMPARE = """\
import clearhead

for source, context in [{pairs}]:
    cost = clearhead.cost(source, context=context{words})
    print("parameters:", cost.parameters, "for one token:", cost.counts.parameters.active)
    print("bytes of weights:", cost.weight_bytes, "of state:", cost.state_bytes)
    print("operations of a pass:", cost.flops["read"].total)
"""


def _as_long_as_it_can(source: str, ask: _Asked) -> Cost:
    asked = _asked(ask.context, ask.batch, ask.dtype, ask.device, 0, ask.price, 0, "adamw", 1, 1)
    bare = _found(source, 0, {})
    end = made_for(bare.counts)
    if bare.counts.fixed_tokens is not None or (end is not None and ask.context > end):
        asked.pop("context", None)
    return _found(source, 0, asked)


def _row(found: Cost) -> dict[str, Any]:
    ask, service = found.ask, found.service
    state = found.counts.state(ask.batch, ask.context, ask.width)
    outweighs = found.outweighs if found.writes else None
    step = all_of_them = None
    if service is not None and service.writes:
        step, all_of_them = service.writing(ask.batch), service.writing(service.users or ask.batch)
    return {
        "parameters": found.parameters,
        "parts": found.counts.parameters.parts,
        "active": found.counts.parameters.active,
        "idle": found.counts.parameters.total - found.counts.parameters.active,
        "width": ask.width,
        "batch": ask.batch,
        "terms": terms_of(found.counts, ask.batch, ask.context, ask.width),
        "made_for": made_for(found.counts),
        "context": ask.context,
        "writes": found.writes,
        "weights": found.weight_bytes,
        "state": state.total,
        "per_token": state.per_token,
        "growth": state.growth,
        "multi_head": state.multi_head_total,
        "outweighs": outweighs,
        "outweighing": None if outweighs is None else found.state_at(outweighs),
        "flops": {name: {"linear": flops.linear, "quadratic": flops.quadratic} for name, flops in found.flops.items()},
        "memory": None if service is None else service.device.memory,
        "per_text": found.counts.state(1, ask.context, ask.width).total,
        "step": None if step is None else {**plain_bound(step.bound), "seconds": step.seconds},
        "all_step": None if all_of_them is None else {"texts": all_of_them.texts, "seconds": all_of_them.seconds},
        "price": ask.price_per_hour,
        "machine": None
        if service is None
        else {
            "name": service.device.name,
            "bandwidth": service.device.bandwidth,
            "peak": service.device.peak(ask.dtype),
        },
        "read": found.flops["read"].total,
        "write": found.flops["write"].total if "write" in found.flops else None,
        "train": found.flops["train"].total,
        "users": None if service is None or not service.writes else service.users,
        "rate": None if service is None or not service.writes else service.writing(ask.batch).tokens_per_second,
        "device": None if service is None else service.device.name,
        "price_written": (
            None
            if service is None or not service.writes or ask.price_per_hour is None
            else service.price_out(service.users or ask.batch)
        ),
    }


def _compare_command(sources: list[str], context: int, asked: dict[str, Any]) -> str:
    first, *others = sources
    words = _command(first, {**({"context": context} if context else {}), **asked})
    return words + ("" if not others else " --compare " + shlex.join(others))
