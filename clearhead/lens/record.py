"""`look`: run a model and keep what was computed on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.aliases import Alias, addresses, aliases
from clearhead.lens.arguments import Arguments, Inputs, arguments
from clearhead.lens.edit import Edits, edit_functions
from clearhead.lens.places import Progress, Site, Slots
from clearhead.lens.seen import Seen
from clearhead.taps import Chain, Editor, Mode, Recorder, Taps, address, catalogue

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

PATTERNS = "layers.*.mixer.pattern"
Metric = Callable[[Any], Tensor]


def look(
    model: Transformer,
    inputs: Inputs,
    *wanted: str,
    edits: Edits | None = None,
    positions: Sequence[int] | None = None,
    gradient_of: Metric | None = None,
    grad: bool = False,
    device: torch.device | str | None = None,
    backend: str = "auto",
) -> Seen:
    """Run `model` once and return the values at the addresses `wanted`: a mapping {address: tensor}, which can draw
    itself.

    wanted: as in `clearhead.taps` ("layers.3.mixer.pattern"), `*` for all; none given: every attention pattern. Or
        TransformerLens' ("blocks.3.attn.hook_z"): the mapping then answers to that name too, with its axes.
    inputs: a text, a list of ids, ids (T,) or (B, T), or a mapping of what `model(...)` takes (tokens under "tokens").
    edits: interventions of the same pass, as `clearhead.edit` takes them; what is recorded is what they return.
    positions: keep these slots alone (negative ones from the end): of what has queries and keys, the queries.
    gradient_of: a function of the output that gives one number; its derivative by each value is in `seen.gradients`.
    grad: keep the graph instead, so that a loss of `seen.output` can be taken back to what was seen.
    device: where the values are moved as they are recorded ("cpu", so that they take no room beside the model).
    The output keeps every bit: patterns are computed beside the backend that runs, not in its place. With a gradient
    (`gradient_of`, `grad`) the pass goes through the patterns that are looked at, and they run the reference.
    Values are what the pass held, without a copy: one tensor may stand at two addresses (the end of a layer is the
    beginning of the next), so take a copy before writing into one.

    Raises:
        ClearheadError: before anything runs, an address or position that is not there, nothing to look at, a text
            longer than the model; a metric that is not one number made from the output.
    """
    call = arguments(model, inputs)
    progress = Progress(call.slots)
    keep = Keep(model, addresses(model, wanted or (PATTERNS,)), progress, positions, device)
    functions = edit_functions(model, edits or {}, progress)
    by_gradient = grad or gradient_of is not None
    recorder = Recorder(
        keep.sites,
        keep_graph=by_gradient,
        copy=call.others.get("state") is not None,
        keep=keep if gradient_of is None and keep.changes else None,
    )
    before: list[Taps] = [progress, Editor(functions)] if functions or positions is not None else []
    leaves: list[Taps] = [Leaves(recorder)] if by_gradient else []
    with torch.set_grad_enabled(by_gradient):
        output = call.call(model, taps=Chain(*before, *leaves, recorder), backend=backend)
    values, gradients = recorder.values, {}
    if gradient_of is not None:
        gradients = {name: keep(name, value) for name, value in _gradients(values, gradient_of, output).items()}
        values = {name: keep(name, value.detach()) for name, value in values.items()}
        output = _detached(output)
    return keep.seen(values, gradients, output, call)


class Keep:
    """What of each value is kept, and where."""

    def __init__(
        self,
        model: Transformer,
        wanted: Sequence[str],
        progress: Progress,
        positions: Sequence[int] | None = None,
        device: torch.device | str | None = None,
    ) -> None:
        letters = catalogue(model)
        self.model = model
        self.sites = {name: Site(Alias(name), tuple(letters[name].split()), {}, progress) for name in wanted}
        self.positions = None if positions is None else list(positions)
        self.device = device
        for place in self.sites.values():
            if self.positions is not None:
                place.check(self.positions, place.token_letter)

    @property
    def changes(self) -> bool:
        """Whether anything but the value itself is kept."""
        return self.positions is not None or self.device is not None

    def __call__(self, where: str, value: Tensor) -> Tensor:
        if self.positions is not None:
            place = self.sites[where]
            letter = place.token_letter
            slots = torch.tensor(place.places(value, self.positions, letter), dtype=torch.long, device=value.device)
            value = value.index_select(place.axis(letter), slots)
        return value if self.device is None else value.to(self.device)

    def seen(self, values: dict[str, Tensor], gradients: dict[str, Tensor], output: Any, call: Arguments) -> Seen:
        """What was kept, in the order of the pass."""
        progress = next(iter(self.sites.values())).progress if self.sites else Progress()
        return Seen(
            {name: values[name] for name in self.sites if name in values},
            {name: " ".join(place.letters) for name, place in self.sites.items() if name in values},
            output,
            labels(self.model, call.tokens_BT),
            sources=labels(self.model, call.others.get("source")),
            gradients={name: gradients[name] for name in self.sites if name in gradients},
            aliases=aliases(self.model),
            slots={path: self._kept(slots) for path, slots in progress.now.items()},
        )

    def _kept(self, slots: Slots) -> Slots:
        """What is left of a stack's slots."""
        if self.positions is None or slots.present_BT is None:
            return slots
        places = [(slots.stop + slot if slot < 0 else slot) - slots.start for slot in self.positions]
        places = [place for place in places if 0 <= place < slots.present_BT.shape[1]]
        return Slots(slots.start, slots.stop, slots.present_BT[:, places])


class Leaves:
    """Taps that let gradients reach what is recorded where no weight asks for one."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    def mode(self, path: str, name: str) -> Mode:
        return "none"

    def __call__(self, path: str, name: str, value: Tensor) -> Tensor:
        wanted = address(path, name) in self.recorder.addresses
        if not wanted or value.requires_grad or not value.is_floating_point():
            return value
        return value.detach().requires_grad_()


def _gradients(values: dict[str, Tensor], metric: Metric, output: Any) -> dict[str, Tensor]:
    """The derivative of the metric by each value, zeros where it does not depend on one; none by whole numbers."""
    loss = metric(output)
    if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
        what = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else f"a {type(loss).__name__}"
        if isinstance(loss, Tensor) and loss.numel() == 1:
            what = "a number that does not depend on what was looked at"
        raise ClearheadError(f"gradient_of must give one number, a tensor made from the output, and it gave {what}")
    real = {name: value for name, value in values.items() if value.requires_grad}
    found = torch.autograd.grad(loss.sum(), list(real.values()), allow_unused=True)
    pairs = zip(real.items(), found, strict=True)
    return {name: torch.zeros_like(value) if grad is None else grad for (name, value), grad in pairs}


def _detached(output: Any) -> Any:
    if isinstance(output, Tensor):
        return output.detach()
    return type(output)(*(None if value is None else value.detach() for value in output))


def labels(model: Transformer, tokens_BT: Tensor | None) -> list[list[str]]:
    """A readable name for every token of every row: text where there is a tokenizer, the id where there is none."""
    if tokens_BT is None:
        return []
    rows: list[list[int]] = tokens_BT.tolist()
    if model.tokenizer is None:
        return [[str(token) for token in row] for row in rows]
    return [model.tokenizer.pieces(row) for row in rows]
