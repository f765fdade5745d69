"""Path patching: what goes from one head to another, and nothing else (Wang 2022, section 3.1; Goldowsky-Dill 2023)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.arguments import Inputs
from clearhead.lens.edit import edit
from clearhead.lens.metrics import Metric, measured
from clearhead.lens.pairs import Scale, given, scale_of, two_runs
from clearhead.lens.patching import padded
from clearhead.lens.record import look
from clearhead.lens.seen import Seen
from clearhead.lens.stream import Addition, additions
from clearhead.lens.table import Table
from clearhead.progress import progress_bar

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

Into = Literal["q", "k", "v", "whole"]
Head = tuple[int, int]
"""(layer, head), of the mixers."""


@dataclass(frozen=True, eq=False)
class Paths(Table):
    """A row a layer of senders, a column a head. `values`: how much of the way from the clean metric to the corrupted
    one is gone when the path alone is corrupted; NaN where there is no path.
    """

    corner: ClassVar[str] = "layer \\ head"
    note: ClassVar[str] = "0 is the clean run, 1 the corrupted one."
    receivers: tuple[Head, ...]
    """Empty: the logits themselves."""
    into: Into
    scale: Scale

    def to_json(self) -> dict[str, Any]:
        """Everything as plain lists and numbers, ready for `json.dumps`."""
        own = {"receivers": [list(head) for head in self.receivers], "into": self.into}
        return {**super().to_json(), **own, "clean": self.scale.clean, "corrupted": self.scale.corrupted}


def path_patching(
    model: Transformer,
    clean: Inputs,
    corrupted: Inputs,
    metric: Metric,
    receivers: Head | Sequence[Head] = (),
    *,
    into: Into = "whole",
    senders: Sequence[Head] | None = None,
    through_ffn: bool = False,
) -> Paths:
    """From each sender, what reaches `receivers` by the stream alone.

    In the clean run one sender's output is replaced by that of the corrupted run, while every sub-layer after it is
    held at what it wrote in the clean run. What the receivers then read (their queries, keys or values, or all) is put
    into the clean run, of those heads alone. Without receivers it is the logits that read: the direct effect.

    into: "q", "k", "v", or "whole" for all three. senders: heads of the mixers; none given: all that come before the
    last receiver. through_ffn: let feed-forwards answer to what changes, as Wang 2022 do; only attention is held.
    Grouped heads are taken one by one: of those that share keys and values, only the receiver reads the changed ones.

    Raises:
        ClearheadError: a head that is not there, texts of unequal length, or a metric that is the same for both.
    """
    if into not in get_args(Into):
        raise ClearheadError(f"into is {into!r}; a path goes into {', '.join(get_args(Into))}")
    heads = _heads(model)
    wanted = _pairs(receivers)
    for head in (*wanted, *(senders or ())):
        _check(heads, head)
    runs = two_runs(model, clean, corrupted)
    z = [f"layers.{layer}.mixer.z" for layer in heads]
    added = additions(model)
    ours = look(model, given(runs.clean), *z, *(addition.out for addition in added))
    theirs = look(model, given(runs.corrupted), *z)
    scale = scale_of(metric, ours.output, theirs.output)
    latest = max((layer for layer, _ in wanted), default=len(model.layers))
    chosen = senders if senders is not None else [(layer, h) for layer, n in heads.items() for h in range(n)]
    chosen = [head for head in chosen if head[0] < latest]
    walk = _Walk(model, given(runs.clean), ours, theirs, added, through_ffn)
    found: dict[Head, float] = {}
    with progress_bar("path patching", len(chosen)) as advance:
        for sender in chosen:
            output = walk.output(sender, wanted, into)
            found[sender] = 1.0 - scale.share(float(measured(metric, output)))
            advance(1)
    layers = [layer for layer in heads if any(layer == sender for sender, _ in found)]
    if not layers:
        raise ClearheadError(f"no head comes before layer {latest}, so nothing can be sent to its heads")
    rows = [[found.get((layer, head), torch.nan) for head in range(heads[layer])] for layer in layers]
    to = ", ".join(f"{layer}.{head}" for layer, head in wanted) or "the logits"
    return Paths(
        title=f"Paths to {to}" + (f" ({into})" if wanted and into != "whole" else ""),
        values=padded(rows),
        row_labels=[f"layer {layer}" for layer in layers],
        column_labels=[str(head) for head in range(max(map(len, rows)))],
        receivers=wanted,
        into=into,
        scale=scale,
    )


@dataclass(frozen=True)
class _Walk:
    """The clean run, and what is needed to change one path in it."""

    model: Transformer
    inputs: dict[str, Any]
    ours: Seen
    theirs: Seen
    added: list[Addition]
    through_ffn: bool

    def output(self, sender: Head, receivers: tuple[Head, ...], into: Into) -> Any:
        """What the model gives when this path alone is corrupted."""
        sending = {**self._sent(sender), **self._held(sender[0])}
        if not receivers:
            return edit(self.model, self.inputs, sending)
        names = ("q", "k", "v") if into == "whole" else (into,)
        layers = sorted({layer for layer, _ in receivers})
        sites = [f"layers.{layer}.mixer.{name}" for layer in layers for name in names]
        read = look(self.model, self.inputs, *sites, edits=sending)
        mixed: dict[str, Callable[[Tensor], Tensor]] = {}
        for layer in layers:
            path, mine = f"layers.{layer}.mixer", [head for at, head in receivers if at == layer]
            reading = {f"{path}.{name}": _put(read[f"{path}.{name}"]) for name in names}
            z_BHTK = look(self.model, self.inputs, f"{path}.z", edits=reading)[f"{path}.z"]
            mixed[f"{path}.z"] = _put(z_BHTK, mine)
        return edit(self.model, self.inputs, mixed)

    def _sent(self, sender: Head) -> dict[str, Callable[[Tensor], Tensor]]:
        where = f"layers.{sender[0]}.mixer.z"
        return {where: _put(self.theirs[where], [sender[1]])}

    def _held(self, layer: int) -> dict[str, Callable[[Tensor], Tensor]]:
        """Everything that comes after the sender's own attention writes what it wrote in the clean run."""
        after = [a for a in self.added if a.layer > layer or (a.layer == layer and a.kind != "mixer")]
        return {a.out: _put(self.ours[a.out]) for a in after if not (self.through_ffn and a.kind == "ffn")}


def _put(new: Tensor, heads: list[int] | None = None) -> Callable[[Tensor], Tensor]:
    """An edit that puts `new` in place of a value, or of some of its heads, (B, H, T, K)."""

    def put(value: Tensor) -> Tensor:
        if heads is None:
            return new
        value = value.clone()
        value[:, heads] = new[:, heads]
        return value

    return put


def _heads(model: Transformer) -> dict[int, int]:
    """{layer: heads} of the mixers that have heads."""
    if not hasattr(model, "layers"):
        raise ClearheadError("paths are those of one stack, and this model has two towers")
    added = [addition for addition in additions(model) if addition.kind == "mixer" and addition.has_heads]
    found = {addition.layer: int(addition.op.config.n_heads) for addition in added}
    if not found:
        raise ClearheadError("this model has no attention, so there are no heads that send or receive")
    return found


def _pairs(receivers: Head | Sequence[Head]) -> tuple[Head, ...]:
    if len(receivers) == 2 and all(isinstance(part, int) for part in receivers):
        return ((receivers[0], receivers[1]),)  # type: ignore[return-value]  # one head, as a pair of numbers
    return tuple((layer, head) for layer, head in receivers)  # type: ignore[misc]


def _check(heads: dict[int, int], head: Head) -> None:
    if head[0] not in heads:
        raise ClearheadError(
            f"there is no attention in layer {head[0]}; layers with heads are {', '.join(map(str, heads))}"
        )
    if not 0 <= head[1] < heads[head[0]]:
        raise ClearheadError(f"there is no head {head[1]} in layer {head[0]}; its heads are 0 to {heads[head[0]] - 1}")
