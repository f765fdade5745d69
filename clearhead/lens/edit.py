"""`edit`: run a model with interventions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from clearhead.lens.arguments import Inputs, arguments
from clearhead.taps import Editor, resolve

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

Edits = Mapping[str, Callable[[Tensor], Tensor]]


def edit(
    model: Transformer,
    inputs: Inputs,
    edits: Edits,
    *,
    grad: bool = False,
    backend: str = "auto",
) -> Any:
    """Run `model` once with interventions and return its output; the model itself is unchanged.

    edits: {address: function}; each function gets the value there and returns the one to use, of the same shape.
    An identity leaves every bit as it was, except at `scores` and `pattern`, which run the reference on that layer.
    A later address wins where two name the same place.

    Raises:
        ClearheadError: an address that this model has not (before anything runs), or a value of another shape.
    """
    taps = Editor(edit_functions(model, edits))
    with torch.set_grad_enabled(grad):
        return arguments(model, inputs).call(model, taps=taps, backend=backend)


def edit_functions(model: Transformer, edits: Edits) -> dict[str, Callable[[Tensor], Tensor]]:
    """One function an address, stars written out."""
    return {name: function for pattern, function in edits.items() for name in resolve(model, (pattern,))}
