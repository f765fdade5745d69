"""`clearhead inspect SOURCE`: a model as tables, from its config and the headers of its files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from clearhead.cli.options import Source

if TYPE_CHECKING:
    from clearhead.checkpoints import Checkpoint
    from clearhead.config import TransformerConfig, TwoTowersConfig
    from clearhead.model.describe import Description


@dataclass(frozen=True, kw_only=True)
class Options:
    source: Source
    """A folder, a .gguf file, a name on the Hub, or a shipped model."""
    json: bool = False
    """Print the same as JSON, with the whole config."""


def run(options: Options) -> None:
    from clearhead.cli import console

    with console.busy(f"reading {options.source}"):
        console.import_torch()
        found = collect(options.source)
    if options.json:
        console.print_json(found)
    else:
        print("\n".join(tables(found)))


def collect(source: str) -> dict[str, Any]:
    """All that is shown, as plain values. No weights are read: the model is built without memory for them."""
    from clearhead.checkpoints import open_checkpoint
    from clearhead.checkpoints.load import blueprint
    from clearhead.model.describe import describe

    with open_checkpoint(source) as checkpoint:
        plan = blueprint(checkpoint)
        description = describe(plan.model)
        return {
            "source": source,
            "file": checkpoint.where,
            "format": checkpoint.format,
            "family": plan.origin.family.model_type,
            "facts": description.facts,
            "parameters": description.n_parameters,
            "stored": stored(checkpoint),
            "unused": plan.plan.unused,
            "layers": description.layers,
            "parts": parts(description),
            "memory": memory(plan.model.config, description),
            "config": worded(asdict(plan.model.config)),
        }


def worded(value: Any) -> Any:
    """`value` with infinite numbers as words, since JSON has no number for them."""
    match value:
        case dict():
            return {key: worded(inner) for key, inner in value.items()}
        case list() | tuple():
            return [worded(inner) for inner in value]
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
    return value


def stored(checkpoint: Checkpoint) -> dict[str, dict[str, int]]:
    """How the file holds its numbers: {dtype: tensors and numbers}, the most numbers first."""
    found: dict[str, dict[str, int]] = {}
    for info in checkpoint.tensors.values():
        row = found.setdefault(str(info.dtype).removeprefix("torch."), {"tensors": 0, "numbers": 0})
        row["tensors"] += 1
        row["numbers"] += info.numel
    return dict(sorted(found.items(), key=lambda item: -item[1]["numbers"]))


def parts(description: Description) -> list[dict[str, Any]]:
    """The parts, those that are alike in several layers as one: {path, layers, kind, shapes, parameters of each}."""
    return [
        {"path": path, "layers": layers, "kind": part.kind, "shapes": part.shapes, "parameters": part.n_parameters}
        for path, layers, part in description.alike()
    ]


def memory(config: TransformerConfig | TwoTowersConfig, description: Description) -> dict[str, dict[str, int]]:
    """Bytes: of the weights by dtype, and of what is kept of the text read so far, per token and of a full context. A
    source that is looked at is kept apart.
    """
    from clearhead.config import TransformerConfig
    from clearhead.costs import counts

    sizes = {"float32": 4, "bfloat16": 2, "float16": 2}
    found = {name: {"weights": description.n_parameters * size} for name, size in sizes.items()}
    if not isinstance(config, TransformerConfig) or config.decoder is None:
        return found
    told = counts(config)
    for name, size in sizes.items():
        found[name]["state of one token"] = told.state(1, 1, size).of_text
        if config.context is not None:
            found[name][f"state of {config.context:,} tokens"] = told.state(1, config.context, size).of_text
    return found


# ---- as text


def tables(found: dict[str, Any]) -> Iterator[str]:
    """The lines that a person reads."""
    from clearhead.costs.units import columns
    from clearhead.model.describe import ranges

    yield from columns([(name, str(value)) for name, value in summary(found)])
    yield ""
    for stack, layers in found["layers"].items():
        yield from columns([(stack, "what each of them is"), *grouped(layers)])
        yield ""
    rows = [("part", "layers", "parameters", "shapes")]
    for part in found["parts"]:
        shapes = ", ".join(f"{name} {' x '.join(map(str, shape))}" for name, shape in part["shapes"].items())
        rows.append((part["path"], ranges(part["layers"]), f"{part['parameters']:,}", shapes))
    yield from columns(rows, right={2})
    yield ""
    names = next(iter(found["memory"].values()))
    sizes = [(dtype, *(megabytes(row[name]) for name in names)) for dtype, row in found["memory"].items()]
    yield from columns([("memory", *names), *sizes], right=set(range(1, len(names) + 1)))


def summary(found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "source", found["source"]
    yield "file", f"{found['file']} ({found['format']})"
    yield "family", found["family"]
    yield from found["facts"].items()
    yield "parameters", f"{found['parameters']:,}"
    if found["unused"]:
        yield (
            "unused",
            f"{len(found['unused'])} tensors of heads that this config does not ask for: "
            + ", ".join(found["unused"][:4])
            + (", ..." if len(found["unused"]) > 4 else ""),
        )
    yield "stored as", ", ".join(f"{dtype} ({row['tensors']} tensors)" for dtype, row in found["stored"].items())


def grouped(layers: Sequence[str]) -> list[tuple[str, str]]:
    """Layers that read alike, together."""
    from clearhead.model.describe import ranges

    alike: dict[str, list[int]] = {}
    for number, words in enumerate(layers):
        alike.setdefault(words, []).append(number)
    return [(ranges(numbers), words) for words, numbers in alike.items()]


def megabytes(n_bytes: int) -> str:
    """In the unit that leaves a few digits."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if n_bytes >= size:
            return f"{n_bytes / size:,.1f} {unit}"
    return f"{n_bytes} B"
