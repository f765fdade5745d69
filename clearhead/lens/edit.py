"""`edit`: run a model with interventions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.aliases import find
from clearhead.lens.arguments import Inputs, arguments
from clearhead.lens.places import EXPERTS, Progress, Site, site
from clearhead.taps import Chain, Editor, catalogue

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

Function = Callable[[Tensor], Tensor]


@runtime_checkable
class Edit(Protocol):
    """What has to know where it works, to be checked before the run: `zero` limited to heads, a mean, a patch."""

    def at_site(self, site: Site) -> Function:
        """The function to use at one place; refuses what that place has not."""
        ...


Edits = Mapping[str, Function | Edit] | Sequence[Mapping[str, Function | Edit]]
"""{address: what to do there}; or several of those, one after another."""


def edit(
    model: Transformer,
    inputs: Inputs,
    edits: Edits,
    *,
    grad: bool = False,
    backend: str = "auto",
) -> Any:
    """Run `model` once with interventions and return its output; the model itself is unchanged.

    edits: {address: function}; each function gets a copy of the value there and returns the one to use, of the same
    shape. Beside functions of your own there are those of `clearhead.lens`: `zero`, `mean`, `resample`, `patch`,
    `steer`, `forbid`, and `at` to limit any of them to heads, positions or experts. Where several name one place, by a
    star, by an alias, or in several mappings (a list of them), all work, in the order given, each on what the one
    before returned.
    An identity leaves every bit as it was, except at `scores` and `pattern`, which run the reference on that layer.
    Addresses may be TransformerLens' (`blocks.3.attn.hook_z`); its axes are then what a function gets, and returns.

    Raises:
        ClearheadError: before anything runs, an address, head, position or expert that this model has not; then a
            value of another shape, NaN or infinity where there was none.
    """
    call = arguments(model, inputs)
    progress = Progress(call.slots)
    taps = Chain(progress, Editor(edit_functions(model, edits, progress)))
    with torch.set_grad_enabled(grad):
        return call.call(model, taps=taps, backend=backend)


def edit_functions(model: Transformer, edits: Edits, progress: Progress) -> dict[str, Function]:
    """One function an address, stars written out; where several name one, they follow each other."""
    letters = catalogue(model)
    found: dict[str, Function] = {}
    for mapping in [edits] if isinstance(edits, Mapping) else edits:
        for pattern, what in mapping.items():
            for alias in find(model, pattern):
                place = site(model, alias, letters[alias.address], progress)
                found[alias.address] = _checked(_after(found.get(alias.address), bound(what, place)), place)
    return found


def bound(what: Function | Edit, place: Site) -> Function:
    """What an edit does at one place; a function of the caller's gets the axes of the name it was given with."""
    if isinstance(what, Edit):
        return what.at_site(place)
    if not callable(what):
        raise ClearheadError(f"the edit of {place.address} is a function of a tensor, not a {type(what).__name__}")
    return place.alias.turned_function(what)


def _after(first: Function | None, then: Function) -> Function:
    return then if first is None else lambda value: then(first(value))


def _checked(function: Function, place: Site) -> Function:
    """Chosen experts are numbers of experts, and another number would reach past the last one's weights."""
    if place.name != "chosen":
        return function
    n = place.sizes[EXPERTS]

    def checked(value: Tensor) -> Tensor:
        new = function(value)
        if isinstance(new, Tensor) and new.numel() and (int(new.min()) < 0 or int(new.max()) >= n):
            raise ClearheadError(
                f"the edit of {place.address} chose an expert that is not there: they are 0 to {n - 1}"
            )
        return new

    return checked
