"""What is taken out of a run: heads, sub-layers, whole layers, single links between tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from clearhead.errors import UsageError
from clearhead.lens import at, forbid, mean, zero
from clearhead.lens.edit import Edit, Function
from clearhead.studio.explore.given import stacks_of
from clearhead.taps import catalogue

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

PARTS = ("mixer", "cross", "ffn")


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """One thing that is taken out, by its place."""

    layer: int
    part: Literal["mixer", "cross", "ffn", "block"] = "mixer"
    """"block": all that the layer adds to the stream."""
    stack: str = ""
    """"encoder" for the one beside a decoder."""
    heads: tuple[int, ...] = ()
    """Heads of the part; none named: the whole part."""
    queries: tuple[int, ...] = ()
    keys: tuple[int, ...] = ()
    """Links: no query of `queries` (all, if none is named) looks at these keys. Weights of the others grow."""
    mode: Literal["zero", "mean"] = "zero"
    """What takes the place of the values: zeros, or their mean over the text. Links are forbidden whatever it says."""


def edits_of(model: Transformer, ablations: Sequence[Ablation]) -> list[Mapping[str, Function | Edit]]:
    """What `clearhead.edit` and `clearhead.look` take, one mapping an ablation.

    Raises:
        UsageError: a layer or part that the model has not. Heads and positions are checked where the edits are used.
    """
    return [edit for ablation in ablations for edit in _edits(model, ablation)]


def code_of(model: Transformer, ablations: Sequence[Ablation]) -> str:
    """The same as Python text: a list of mappings."""
    lines = [line for ablation in ablations for line in _lines(model, ablation)]
    return "[" + ", ".join(lines) + "]"


def _edits(model: Transformer, ablation: Ablation) -> list[Mapping[str, Function | Edit]]:
    heads = list(ablation.heads) or None
    found: list[Mapping[str, Function | Edit]] = []
    for path in _paths(model, ablation):
        if ablation.keys or ablation.queries:
            limited = at(
                forbid,
                heads=heads,
                positions=list(ablation.queries) or None,
                keys=list(ablation.keys) or None,
            )
            found.append({f"{path}.scores": limited})
        elif heads is not None:
            found.append({f"{path}.z": at(_what(ablation), heads=heads)})
        else:
            found.append({f"{path}.out": _what(ablation)})
    return found


def _what(ablation: Ablation) -> Function | Edit:
    return zero if ablation.mode == "zero" else mean(over="positions")


def _lines(model: Transformer, ablation: Ablation) -> list[str]:
    heads = f"heads={list(ablation.heads)}" if ablation.heads else ""
    what = "zero" if ablation.mode == "zero" else 'mean(over="positions")'
    lines = []
    for path in _paths(model, ablation):
        if ablation.keys or ablation.queries:
            limits = [heads] if heads else []
            limits += [f"positions={list(ablation.queries)}"] if ablation.queries else []
            limits += [f"keys={list(ablation.keys)}"] if ablation.keys else []
            lines.append(f'{{"{path}.scores": at(forbid, {", ".join(limits)})}}')
        elif heads:
            lines.append(f'{{"{path}.z": at({what}, {heads})}}')
        else:
            lines.append(f'{{"{path}.out": {what}}}')
    return lines


def _paths(model: Transformer, ablation: Ablation) -> list[str]:
    """The sub-layers that an ablation is about."""
    stacks = stacks_of(model)
    if ablation.stack not in stacks:
        raise UsageError(f"this model has no stack {ablation.stack!r}; it has {', '.join(map(repr, stacks))}")
    layers = stacks[ablation.stack].layers
    if not 0 <= ablation.layer < len(layers):
        raise UsageError(f"there is no layer {ablation.layer}; there are 0 to {len(layers) - 1}")
    block = layers[ablation.layer]
    there = [name for name in PARTS if getattr(block, name) is not None]
    wanted = there if ablation.part == "block" else [name for name in there if name == ablation.part]
    if not wanted:
        raise UsageError(f"layer {ablation.layer} has no {ablation.part}; it has {', '.join(there)}")
    before = f"{ablation.stack}." if ablation.stack else ""
    paths = [f"{before}layers.{ablation.layer}.{name}" for name in wanted]
    if ablation.heads or ablation.keys or ablation.queries:
        known = catalogue(model)
        paths = [path for path in paths if f"{path}.scores" in known]
        if not paths:
            raise UsageError(f"the {ablation.part} of layer {ablation.layer} has no attention heads")
    return paths
