"""The stream as it grows: the sum of the embedding and of what each sub-layer has added so far."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from clearhead.errors import ClearheadError
from clearhead.lens.arguments import Inputs, arguments
from clearhead.lens.frozen import FrozenNorm
from clearhead.lens.reading import read_direction
from clearhead.lens.record import look
from clearhead.lens.stream import additions, embedding_parts
from clearhead.lens.table import Table
from clearhead.lens.targets import Target, check_vocabulary, check_whole, token_ids, token_names
from clearhead.lens.views.labels import visible

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer


@dataclass(frozen=True, eq=False)
class Accumulated(Table):
    """A row a part, in the order in which they are added; a column a token. `values` are lengths of the sum so far,
    or what it makes of the logit asked for.
    """

    parts_PBTD: Tensor
    """What each part adds, as it stands at the end."""
    stream_PBTD: Tensor
    """The sum of all parts up to each: the last is the stream that the head reads."""


def accumulated(
    model: Transformer, inputs: Inputs, *, target: Target | None = None, normed: bool = True, row: int = 0
) -> Accumulated:
    """The cumulative sum of the stream's parts, each as it stands at the end of the pass.

    normed: through the final norm with its scale frozen as it was at the end, which keeps it a sum; its bias is the
    last part. Norms after an addition (post-norm) are frozen in the same way. target: give the logit that each sum
    makes (before a soft-cap), of `target` at every place, the head's bias with the last part. row: of a batch, the row
    that `values` are of. All in float64.

    Raises:
        ClearheadError: a target and no vocabulary head, a model in training, or a row that is not there.
    """
    if target is not None:
        check_vocabulary(model, "the logit of a target")
    if not hasattr(model, "layers"):
        raise ClearheadError("the parts of a stream are those of one stack, and this model has two towers")
    if model.training:
        raise ClearheadError("the model is in training, where dropout makes each pass another; call model.eval()")
    check_whole(arguments(model, inputs))
    added = additions(model)
    last = f"layers.{len(model.layers) - 1}.resid_post"
    terms = ["embed", *(f"{model.embed.path}.{name}" for name in model.embed.sites)]
    seen = look(model, inputs, *terms, *(place for addition in added for place in addition.addresses()), last)
    B, T, _ = seen[last].shape
    if not 0 <= row < B:
        raise ClearheadError(f"there is no row {row}; there are {B}")

    parts = embedding_parts(model, seen)
    for addition in added:
        parts[addition.label] = seen[addition.out].double()
        norm = addition.norm_after(seen)
        if norm is not None:
            parts = {name: norm.map(part_BTD) for name, part_BTD in parts.items()}
            if norm.bias_D is not None:
                parts[f"{addition.label} norm bias"] = norm.bias_D.expand(B, T, -1)
    at_end = torch.stack(list(parts.values()))
    logits_PT = None
    if target is not None:
        reading = read_direction(model, seen[last].flatten(0, 1), token_ids(model, target).expand(B * T))
        logits_PT = (at_end.flatten(1, 2) * reading.direction_BD).sum(-1).cumsum(0).unflatten(1, (B, T))[:, row]
        logits_PT[-1] += sum(reading.constants.values(), torch.zeros(())).expand(B * T).view(B, T)[row]
    if normed and model.norm is not None:
        final = FrozenNorm(model.norm, seen[last])
        at_end = final.map(at_end)
        if final.bias_D is not None:
            parts["final norm bias"] = final.bias_D
            at_end = torch.cat([at_end, final.bias_D.expand(1, B, T, -1)])
    stream_PBTD = at_end.cumsum(0)
    labels = list(parts)
    values = stream_PBTD[:, row].norm(dim=-1) if logits_PT is None else logits_PT
    what = "length" if target is None else f"logit of {token_names(model, token_ids(model, target))[0]}"
    return Accumulated(
        title=f"The stream so far: {what}",
        values=values,
        row_labels=labels[: len(values)],
        column_labels=[visible(label) for label in seen.tokens[row]] if seen.tokens else [str(i) for i in range(T)],
        parts_PBTD=at_end,
        stream_PBTD=stream_PBTD,
    )
