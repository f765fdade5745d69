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
    """Bytes: of the weights by dtype, and of what is kept of the text read so far, per token and of a full context."""
    from clearhead.config import TransformerConfig

    sizes = {"float32": 4, "bfloat16": 2, "float16": 2}
    found = {name: {"weights": description.n_parameters * size} for name, size in sizes.items()}
    if not isinstance(config, TransformerConfig) or config.decoder is None:
        return found
    for name, size in sizes.items():
        found[name]["state of one token"] = kept_numbers(config, 1) * size
        if config.context is not None:
            found[name][f"state of {config.context:,} tokens"] = kept_numbers(config, config.context) * size
    return found


def kept_numbers(config: TransformerConfig, n_tokens: int) -> int:
    """Numbers that decoding keeps of one text of so many tokens, a source that it looks at apart."""
    assert config.decoder is not None
    return sum(_kept(block.mixer.op, n_tokens) for block in config.decoder.blocks)


def _kept(op: object, n_tokens: int) -> int:
    """Of one layer: a window keeps no more than the window, and a scan a state of one size."""
    from clearhead.config import AttentionConfig, LatentAttentionConfig, Mamba2Config, MambaConfig

    match op:
        case AttentionConfig():
            return 2 * op.n_kv_heads * op.d_head * min(n_tokens, op.mask.window or n_tokens)
        case LatentAttentionConfig(widths=widths):
            return (widths.kv + widths.rope) * n_tokens
        case MambaConfig():
            return op.d_inner * (op.d_state + op.conv.width - 1)
        case Mamba2Config():
            channels = op.n_heads * op.d_head + 2 * op.n_groups * op.d_state
            return op.n_heads * op.d_head * op.d_state + channels * (op.conv.width - 1)
    raise AssertionError(op)


# ---- as text


def tables(found: dict[str, Any]) -> Iterator[str]:
    """The lines that a person reads."""
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


def columns(rows: Sequence[Sequence[str]], right: frozenset[int] | set[int] = frozenset()) -> Iterator[str]:
    """Rows with their columns aligned; those in `right` to the right. Wide ones are left to the terminal to wrap."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        yield "  ".join(cells).rstrip()
