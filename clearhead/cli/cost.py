"""`clearhead cost SOURCE`: what a model takes to hold, to run, to train and to serve, from its config alone."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union

from tyro.conf import Positional, arg

from clearhead.cli.options import OptionalFloat, OptionalInt, OptionalText
from clearhead.errors import UsageError

if TYPE_CHECKING:
    from clearhead.costs.charts import Chart
    from clearhead.costs.fit import Fit

    Names = tuple[str, ...]
else:
    Names = Annotated[tuple, arg(metavar="SOURCE", help_behavior_hint="")]
Plot = Annotated[
    Union[Literal["context"], None],  # noqa: UP007
    arg(metavar="context", help_behavior_hint=""),
]


@dataclass(frozen=True, kw_only=True)
class Texts:
    """What it is given to do."""

    context: OptionalInt = None
    """Tokens of each text; as many as the model was made for when not given."""
    batch: int = 1
    """Texts at once."""
    dtype: Annotated[
        Literal["float32", "bfloat16", "float16", "float8", "int8"],
        arg(metavar="float32|bfloat16|float16|float8|int8"),
    ] = "bfloat16"
    """Of weights and state."""
    kept: OptionalInt = None
    """Tokens at the beginning of a prompt that are kept from before; all of it when not given."""
    rope: OptionalText = None
    """Stretch rotary positions for longer texts, as yarn:4 or linear:4."""


@dataclass(frozen=True, kw_only=True)
class Where:
    """What it is to run on."""

    device: OptionalText = None
    """An accelerator by its name (h100-sxm, a100-80gb, l4, mi300x, ...), or "here": this machine, which is measured."""
    devices: OptionalInt = None
    """How many of them; the fewest that hold weights and state when not given."""
    memory: OptionalFloat = None
    """GiB that weights and state are to fit in; the device's when not given."""
    price_per_hour: OptionalFloat = None
    """Dollars for all devices together."""
    fast_memory: OptionalFloat = None
    """KiB that tiles of attention are to fit in; 192 when not given."""


@dataclass(frozen=True, kw_only=True)
class Learning:
    """How it is trained."""

    optimiser: Annotated[
        Literal["adamw", "muon", "adafactor"],
        arg(metavar="adamw|muon|adafactor"),
    ] = "adamw"
    """What moves the weights."""
    shard: int = 1
    """So many processes share every weight (FSDP2)."""
    tensor: int = 1
    """Times so many that share matrices."""


@dataclass(frozen=True, kw_only=True)
class Laws:
    """How large a model to train."""

    budget: OptionalFloat = None
    """Floating-point operations to train with, as in 1e21: the size and the tokens that laws of scaling give them."""
    runs: OptionalText = None
    """A folder of runs of `clearhead train`: fit a law of your own to them."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """What is drawn."""

    plot: Plot = None
    """Costs against the length of the texts; or with --runs, runs and their law. In the terminal, or to a file with
    --save."""
    save: OptionalText = None
    """Write the plot to this file, .svg or .png."""


@dataclass(frozen=True, kw_only=True)
class Options:
    source: Annotated[Positional[str], arg(metavar="SOURCE", help_behavior_hint="")] = ""
    """A published model's name (llama3-70b), a family's (llama), a folder, a config.json, a .gguf file, a shipped model
    or a name on the Hub. No weights are read."""
    texts: Texts
    where: Where
    learning: Learning
    laws: Laws
    compare: Names = ()
    """Other models, to be put beside it."""
    picture: Picture
    json: bool = False
    """Print every number as JSON: bytes, seconds, operations and dollars."""


def run(options: Options) -> None:
    sources = [name for name in (options.source, *options.compare) if name]
    laws = options.laws
    if not sources and laws.budget is None and laws.runs is None:
        raise UsageError("name a model, as in `clearhead cost llama3-70b`; or give --budget or --runs")
    if options.picture.plot is None and options.picture.save is not None:
        raise UsageError("--save writes a plot: add --plot context")
    if sources and laws.runs is not None:
        raise UsageError("--runs is about runs and not about a model; leave SOURCE out")
    if options.picture.plot is not None and not sources and laws.runs is None:
        raise UsageError("--plot draws a model's costs, or with --runs a law; name one of them")
    from clearhead.cli import console
    from clearhead.cli.inspect import worded

    with console.busy("starting" if options.where.device != "here" else "measuring this machine"):
        console.import_torch()
        from clearhead.costs.charts import check_extension

        if options.picture.save is not None:
            check_extension(options.picture.save)
        found = _of_runs(laws.runs) if laws.runs is not None else _of_models(sources, options)
    told: dict[str, Any] = found.to_json() if options.json and found is not None else {}
    if not options.json and found is not None and not (options.picture.plot and options.picture.save is None):
        found.print()
    if laws.budget is not None:
        told["allocations"] = _of_budget(laws.budget, found, quiet=options.json)
    if options.json:
        console.print_json(worded(told))
    if found is not None and options.picture.plot is not None:
        _plot(found.charts(), options)


def _of_models(sources: list[str], options: Options) -> Any:
    """The cost of one, or a comparison of several; None where there are none."""
    from clearhead.cli.options import rope_scaling
    from clearhead.costs.compare import compare
    from clearhead.costs.cost import cost

    if not sources:
        return None
    texts, where = options.texts, options.where
    asked: dict[str, Any] = {
        "context": texts.context,
        "batch": texts.batch,
        "dtype": texts.dtype,
        "kept": texts.kept,
        "rope": None if texts.rope is None else rope_scaling(texts.rope),
        "device": where.device,
        "devices": where.devices,
        "memory": where.memory,
        "price_per_hour": where.price_per_hour,
        "fast_memory": where.fast_memory,
        **asdict(options.learning),
    }
    return compare(sources, **asked) if options.compare else cost(sources[0], **asked)


def _of_runs(folder: str) -> Fit:
    from clearhead.costs.fit import fit
    from clearhead.costs.runs import read_runs

    return fit(read_runs(folder))


def _of_budget(flops: float, found: Any, *, quiet: bool) -> list[dict[str, Any]]:
    """What laws of scaling would do with it, that of runs among them."""
    from clearhead.costs.scaling import allocations
    from clearhead.costs.show import print_allocations

    listed = allocations(flops)
    own = found.allocation(flops) if hasattr(found, "allocation") else None
    listed += [own] if own is not None else []
    if not quiet:
        print_allocations(listed, flops)
    return [asdict(one) for one in listed]


def _plot(charts: tuple[Chart, ...], options: Options) -> None:
    import sys

    from clearhead.costs.charts import save
    from clearhead.costs.terminal import in_terminal

    if options.picture.save is not None:
        print(f"wrote {save(charts, options.picture.save)}", file=sys.stderr)
        return
    if options.json:
        return
    from rich.console import Console

    console = Console()
    for chart in charts:
        console.print(in_terminal(chart, min(console.width, 100)), soft_wrap=True)
        console.print()
