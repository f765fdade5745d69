"""The whole model as one diagram: every part with its shapes and parameters, and every tap as something to look at."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import torch
from pydantic import Field
from torch import Tensor, nn

from clearhead.errors import UsageError
from clearhead.model.describe import describe
from clearhead.model.stack import Stack
from clearhead.nn.attention import Attention
from clearhead.nn.cross_attention import CrossAttention
from clearhead.nn.experts import Experts
from clearhead.nn.feed_forward import FeedForward
from clearhead.nn.latent_attention import LatentAttention
from clearhead.nn.mamba import Mamba
from clearhead.nn.mamba2 import Mamba2
from clearhead.nn.recurrent import Recurrent
from clearhead.studio.explore.given import LAYER, stacks_of
from clearhead.studio.explore.parts import Address, ModelId, Number, RunId
from clearhead.studio.explore.promptly import promptly
from clearhead.studio.operations import Answer, operation
from clearhead.taps import catalogue

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.context import Studio

MAX_SIDE = 1024
"""Rows and columns of a map that is sent whole; of what is larger, so many from a chosen one on."""
Place = Annotated[int, Field(ge=0, le=10_000_000)]
NORMS = {"mixer": "mixer_norm", "cross": "cross_norm", "ffn": "ffn_norm"}


@operation("explore.shapes")
def shapes(studio: Studio, *, model: ModelId = "clear-gpt") -> Answer | Iterator[Answer]:
    """The model's parts in the order of the pass, with their parameters and taps."""
    return promptly(studio.models.holds(model), lambda: _shapes_of(studio, model))


def _shapes_of(studio: Studio, model: str) -> Answer:
    found: Transformer = studio.models.get(model)
    known = catalogue(found)
    described = describe(found)
    total = sum(parameter.numel() for parameter in found.parameters())
    stacks = [_stack(found, path, stack, known) for path, stack in stacks_of(found).items()]
    ends = [] if stacks[0]["path"] else [_ending(found, known)]
    return Answer(
        data={
            "facts": [{"name": name, "value": value} for name, value in described.facts.items()],
            "stacks": stacks,
            "ends": ends,
            "parameters": total,
            "addends": _addends(found),
            "bytes": described.n_bytes,
        },
        python=f"import clearhead\n\n{studio.models.code(model)}\n"
        "print(sum(parameter.numel() for parameter in model.parameters()))\n",
        printed=(float(total),),
    )


def _addends(model: Transformer) -> list[dict[str, Any]]:
    """Parts whose parameters sum to all of the model's. A matrix that two parts share counts with the first of them."""
    parts: list[tuple[str, nn.Module | None]] = []
    for path, stack in stacks_of(model).items():
        before = f"{path} " if path else ""
        parts += [(f"{before}embedding", stack.embed)]
        parts += [(f"{before}layer {number}", block) for number, block in enumerate(stack.layers)]
        parts += [(f"{before}final norm", stack.norm)]
    parts += [("heads and the rest", model)]
    counted: set[int] = set()
    found = []
    for name, part in parts:
        own = [p for p in part.parameters() if id(p) not in counted] if part is not None else []
        counted |= {id(p) for p in own}
        if own:
            found.append({"name": name, "parameters": sum(p.numel() for p in own)})
    return found


@operation("explore.tap")
def tap(
    studio: Studio,
    *,
    run: RunId,
    address: Address,
    head: Number = 0,
    last: Number = 0,
    row: Place = 0,
    col: Place = 0,
) -> Answer | Iterator[Answer]:
    """What stands at a tap, as a map of one row a token: of one head where there are several, and of one number of the
    state or gate (`last`) where there is an axis more. Of a large one, the cells from `row` and `col` on.
    """
    part = Part(head, last, row, col)
    return promptly(studio.runs.has(run, address), lambda: _tap_at(studio, run, address, part))


@dataclass(frozen=True)
class Part:
    """What of a tap's value is drawn: see `tap`."""

    head: int
    last: int
    row: int
    col: int


def _tap_at(studio: Studio, run: str, address: str, part: Part) -> Answer:
    one = studio.runs.get(run)
    letters = studio.runs.letters(one, address)
    value = studio.runs.exact(run, address)[0]
    index, fixed = _flat(letters, value, part.head, part.last)
    map_TX = value[index] if index else value
    whole = value.double()
    finite = whole[whole.isfinite()]
    # The last cells are shown with those before them: never less than there is room for.
    row, col = (max(0, min(at, n - MAX_SIDE)) for at, n in zip((part.row, part.col), map_TX.shape, strict=True))
    shown = map_TX[row : row + MAX_SIDE, col : col + MAX_SIDE]
    largest = int(map_TX.abs().nan_to_num(posinf=0, neginf=0).argmax())
    place = [largest // map_TX.shape[1], largest % map_TX.shape[1]]
    statistics = {
        "sum": float(finite.sum()),
        "finite": finite.numel(),
        "mean": float(finite.mean()),
        "squares": float((finite - finite.mean()).square().sum()),
        "std": float(finite.std(unbiased=False)),
        "least": float(finite.min()),
        "most": float(finite.max()),
        "least_at": _place(whole.nan_to_num(nan=torch.inf, neginf=torch.inf).argmin(), whole),
        "most_at": _place(whole.nan_to_num(nan=-torch.inf, posinf=-torch.inf).argmax(), whole),
    }
    subscript = "".join(f", {text}" for text in ("0", *(_subscript(letters, fixed))))[2:]
    largest_value = float(map_TX[place[0], place[1]])
    return Answer(
        data={
            "address": address,
            "letters": letters,
            "shape": list(value.shape),
            "map_shape": list(map_TX.shape),
            "heads": _size(letters, value, ("H", "G")),
            "lasts": _size(letters, value, ("N",)) if len(letters) > 2 else 0,
            "rows_are": letters[_kept(letters, fixed)[0]],
            "columns_are": letters[_kept(letters, fixed)[1]],
            "fixed": [fixed.get(axis) for axis in range(len(letters))],
            **statistics,
            "masked": int((whole == float("-inf")).sum()),
            "count": value.numel(),
            "largest_at": place,
            "largest": largest_value,
            "cut": list(map_TX.shape) != list(shown.shape),
            "from": [row, col],
            "side": MAX_SIDE,
        },
        arrays={"map": shown.float().contiguous()},
        python=one.opening(studio.models.get(one.model))
        + f'value = {one.look(address)}["{address}"]\n'
        + f"part = value[{subscript}]\n"
        + f"print(float(part[{place[0]}, {place[1]}]))  # the largest in size of this map\n",
        printed=(largest_value,),
    )


def _place(flat: Tensor, value: Tensor) -> list[int]:
    """Where a cell stands, from its number in a row."""
    return [int(i) for i in torch.unravel_index(flat, value.shape)]


def _size(letters: list[str], value: Tensor, wanted: tuple[str, ...]) -> int:
    return next((value.shape[i] for i, letter in enumerate(letters) if letter in wanted), 0)


def _flat(letters: list[str], value: Tensor, head: int, last: int) -> tuple[tuple[Any, ...], dict[int, int]]:
    """The index that leaves two axes, tokens and one more; and which axes it fixes to what."""
    fixed: dict[int, int] = {}
    if value.ndim > 2:
        for axis, letter in enumerate(letters):
            if letter in ("H", "G") and value.ndim - len(fixed) > 2:
                fixed[axis] = head
        if value.ndim - len(fixed) > 2:
            fixed[value.ndim - 1] = last
    for axis, number in fixed.items():
        if number >= value.shape[axis]:
            raise UsageError(f"there is no {letters[axis]} {number} here; there are 0 to {value.shape[axis] - 1}")
    if value.ndim - len(fixed) != 2:
        raise UsageError(f"a value of shape {tuple(value.shape)} can't be drawn as a map")
    return tuple(fixed.get(axis, slice(None)) for axis in range(value.ndim)) if fixed else (), fixed


def _kept(letters: list[str], fixed: dict[int, int]) -> list[int]:
    return [axis for axis in range(len(letters)) if axis not in fixed]


def _subscript(letters: list[str], fixed: dict[int, int]) -> list[str]:
    return [str(fixed[axis]) if axis in fixed else ":" for axis in range(len(letters))]


# ---- the diagram


def _stack(model: Transformer, path: str, stack: Stack, known: dict[str, str]) -> dict[str, Any]:
    """One stack: its embedding, its blocks, its last norm."""
    before = f"{path}." if path else ""
    embed = _part(f"{before}embed", stack.embed, "embedding", known)
    embed["taps"] += [_tap(f"{before}embed", known)] if f"{before}embed" in known else []
    n_all = sum(parameter.numel() for parameter in model.parameters())
    blocks = []
    for number, block in enumerate(stack.layers):
        parallel: bool = block.config.parallel  # type: ignore[union-attr,assignment]
        at = f"{before}layers.{number}"
        parts = []
        for name, its_norms in NORMS.items():
            op = getattr(block, name)
            if op is None:
                continue
            norms: Any = getattr(block, its_norms)
            part = _part(f"{at}.{name}", op, _kind(op), known)
            part["norms"] = [
                {"place": where, "parameters": sum(p.numel() for p in one.parameters()), "kind": one.config.kind}
                for where in ("pre", "out", "after")
                if (one := getattr(norms, where)) is not None
            ]
            part["parameters"] += sum(one["parameters"] for one in part["norms"])
            part["adds"] = getattr(block.config, name).residual
            parts.append(part)
        blocks.append(
            {
                "layer": number,
                "path": at,
                "parts": parts,
                "parallel": parallel,
                "parameters": (n_own := sum(parameter.numel() for parameter in block.parameters())),
                "share": n_own / n_all,
                "taps": [
                    _tap(a, known)
                    for a in known
                    if (m := LAYER.fullmatch(a)) and a == f"{at}{m['after']}" and m["after"].count(".") == 1
                ],
            }
        )
    norm = stack.norm
    return {
        "path": path,
        "embed": embed,
        "blocks": blocks,
        "norm": None
        if norm is None
        else {"kind": norm.config.kind, "parameters": sum(p.numel() for p in norm.parameters())},
        "taps": [_tap(a, known) for a in (f"{before}final",) if a in known],
        "parameters": sum(parameter.numel() for parameter in _unshared(stack)),
    }


def _unshared(stack: Stack) -> list[nn.Parameter]:
    """A stack's own parameters: without those of an encoder beside it, or of its heads."""
    parts = [stack.embed, stack.layers, *([stack.norm] if stack.norm is not None else [])]
    parts += [stack.relative] if stack.relative is not None else []
    return list({id(p): p for part in parts for p in part.parameters()}.values())


def _ending(model: Transformer, known: dict[str, str]) -> dict[str, Any]:
    """What reads the finished stream."""
    heads: dict[str, nn.Module | None] = {"token head": model.head, "pool": model.pool}
    heads |= {f"labels: {name}": head for name, head in model.labels.items()}
    tied = model.head is not None and model.head.weight is None
    return {
        "heads": [
            {
                "name": name,
                "shapes": _shapes(head),
                "parameters": sum(p.numel() for p in head.parameters()),
                "tied": tied and name == "token head",
            }
            for name, head in heads.items()
            if head is not None
        ],
        "taps": [_tap(a, known) for a in ("logits",) if a in known],
    }


def _part(path: str, module: nn.Module, kind: str, known: dict[str, str]) -> dict[str, Any]:
    """A module as a box of the diagram."""
    return {
        "path": path,
        "kind": kind,
        "parameters": sum(parameter.numel() for parameter in module.parameters()),
        "shapes": _shapes(module),
        "taps": [_tap(a, known) for a in known if a.startswith(f"{path}.")],
    }


def _shapes(module: nn.Module) -> list[dict[str, Any]]:
    return [{"name": name, "shape": list(p.shape), "parameters": p.numel()} for name, p in module.named_parameters()]


def _tap(address: str, known: dict[str, str]) -> dict[str, str]:
    return {"address": address, "name": address.rpartition(".")[2], "letters": known[address].removeprefix("B ")}


def _kind(op: nn.Module) -> str:
    """What an operation is, in words."""
    return KINDS.get(type(op), type(op).__name__)


KINDS: dict[type[nn.Module], str] = {
    Attention: "attention",
    CrossAttention: "cross-attention",
    LatentAttention: "latent attention",
    FeedForward: "feed-forward",
    Experts: "experts",
    Mamba: "selective scan",
    Mamba2: "selective scan",
    Recurrent: "recurrent cell",
}
