"""`look`: run a model and keep what was computed on the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.lens.arguments import Inputs, arguments
from clearhead.lens.edit import Edits, edit_functions
from clearhead.lens.seen import Seen
from clearhead.taps import Chain, Editor, Recorder, Taps, catalogue, resolve

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer

PATTERNS = "layers.*.mixer.pattern"


def look(
    model: Transformer,
    inputs: Inputs,
    *addresses: str,
    edits: Edits | None = None,
    grad: bool = False,
    backend: str = "auto",
) -> Seen:
    """Run `model` once and return the values at `addresses`: a mapping {address: tensor} that can draw itself.

    addresses: as in `clearhead.taps` ("layers.3.mixer.pattern"), `*` for all; none given: every attention pattern.
    inputs: a text, a list of ids, ids (T,) or (B, T), or a mapping of what `model(...)` takes (tokens under "tokens").
    edits: interventions of the same pass, as `clearhead.edit` takes them; what is recorded is what they return.
    grad: keep the graph, so that a loss of `seen.output` can be taken back to what was seen.
    The output keeps every bit: patterns are computed beside the backend that runs, not in its place.

    Raises:
        ClearheadError: an address that this model has not (before anything runs), or nothing to look at.
    """
    wanted = resolve(model, addresses or (PATTERNS,))
    functions = edit_functions(model, edits or {})
    call = arguments(model, inputs)
    recorder = Recorder(wanted, keep_graph=grad)
    taps: Taps = Chain(Editor(functions), recorder) if functions else recorder
    with torch.set_grad_enabled(grad):
        output = call.call(model, taps=taps, backend=backend)
    shapes = catalogue(model)
    values = {name: recorder.values[name] for name in wanted if name in recorder.values}
    return Seen(values, {name: shapes[name] for name in values}, output, labels(model, call.tokens_BT))


def labels(model: Transformer, tokens_BT: Tensor | None) -> list[list[str]]:
    """A readable name for every token of every row: text where there is a tokenizer, the id where there is none."""
    if tokens_BT is None:
        return []
    rows: list[list[int]] = tokens_BT.tolist()
    if model.tokenizer is None:
        return [[str(token) for token in row] for row in rows]
    return [model.tokenizer.pieces(row) for row in rows]
