"""Attention over a picture: what the model was given to see, what it says it is, and where it looked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from pydantic import Field

from clearhead.errors import ClearheadError, UsageError
from clearhead.lens import edit, rollout
from clearhead.studio.explore.given import origin_of
from clearhead.studio.explore.parts import RunId
from clearhead.studio.explore.promptly import promptly
from clearhead.studio.explore.worked import log_sum
from clearhead.studio.kept import KeptResults
from clearhead.studio.operations import Answer, operation

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.context import Studio
    from clearhead.studio.explore.runs import Run

_followed: KeptResults[torch.Tensor] = KeptResults(8)
"""(L, T, T): a rollout gives all its rows at once, up to each layer."""


@operation("explore.picture")
def picture(studio: Studio, *, run: RunId) -> Iterator[Answer]:
    """The picture as the model is given it, and the labels it finds for it."""
    one, model = _seen(studio, run)
    from clearhead.inputs.images import ImageProcessor

    assert one.given.picture is not None
    processor = ImageProcessor.from_folder(origin_of(model, "pictures"))
    pixels_HWC = processor.fitted(studio.runs.uploads.picture(one.given.picture))
    pixels = torch.from_numpy(np.array(pixels_HWC))
    labels, sums = _labels(studio, one, model)
    python, printed = "", ()
    if labels:
        python = (
            one.opening(model)
            + "from clearhead.lens import edit\n\n"
            + f"logits = edit(model, inputs, {'edits' if one.ablate else '{}'})\n"
            + f"for share in logits[0].float().softmax(-1).topk({len(labels)}).values:\n    print(float(share))\n"
        )
        printed = tuple(label["share"] for label in labels)
    yield Answer(
        data={
            "height": pixels.shape[0],
            "width": pixels.shape[1],
            "channels": pixels.shape[2],
            "labels": labels,
            "log_sum": sums,
        },
        arrays={"pixels": pixels},
        python=python,
        printed=printed,
    )


@operation("explore.rollout")
def rolled_out(
    studio: Studio,
    *,
    run: RunId,
    query: Annotated[int, Field(ge=0, le=100_000)] = 0,
    part: Annotated[str, Field(max_length=20)] = "",
) -> Answer | Iterator[Answer]:
    """How much of each input is in one place after all layers, followed through the mean of the heads."""
    one = studio.runs.get(run)
    if one.ablate:
        raise UsageError("rollout is of the model as it is: take back what was switched off")
    key = _followed.key(studio.models, one.model, run, part)
    is_there = studio.runs.has(run) and _followed.get(key) is not None
    return promptly(is_there, lambda: _rolled_out(studio, run, query, part))


def _rolled_out(studio: Studio, run: str, query: int, part: str) -> Answer:
    one, model = _seen(studio, run)
    layers_LTT = _followed.of(
        studio.models,
        one.model,
        run,
        part,
        make=lambda model: rollout(model, one.inputs(model), part=part).layers_LTS.float(),
    )
    if query >= layers_LTT.shape[1]:
        raise UsageError(f"there is no place {query}; there are 0 to {layers_LTT.shape[1] - 1}")
    row = layers_LTT[-1, query]
    largest = int(row.argmax())
    where = "" if not part else f", part={part!r}"
    return Answer(
        data={"largest_at": largest, "largest": float(row[largest])},
        arrays={"row": row, "layers": layers_LTT[:, query].contiguous()},
        python=one.opening(model)
        + "from clearhead.lens import rollout\n\n"
        + f"row = rollout(model, inputs{where}).values[{query}]\nprint(float(row[{largest}]))\n",
        printed=(float(row[largest]),),
    )


def _seen(studio: Studio, run: str) -> tuple[Run, Transformer]:
    one = studio.runs.get(run)
    if one.given.picture is None:
        raise UsageError("this run read no picture")
    return one, studio.models.get(one.model)


def _labels(studio: Studio, one: Run, model: Transformer) -> tuple[list[dict[str, Any]], float | None]:
    """The likeliest labels, where the model has one head over labels and nothing else; and the logarithm of what their
    softmax divides by.
    """
    heads = getattr(model, "labels", {})
    if len(heads) != 1 or getattr(model, "head", None) is not None:
        return [], None
    try:
        with studio.models.lock(one.model), torch.no_grad():
            logits = edit(model, one.inputs(model), one.edits(model))
    except ClearheadError:
        return [], None
    if not isinstance(logits, torch.Tensor) or logits.ndim != 2:
        return [], None
    logits_C = logits[0].float()
    shares, places = logits_C.softmax(-1).topk(min(10, len(logits_C)))
    names = {} if model.origin is None else dict(model.origin.raw_config.get("id2label") or {})
    labels = [
        {"label": str(names.get(str(i), names.get(i, f"label {i}"))), "share": share, "logit": float(logits_C[i])}
        for i, share in zip(places.tolist(), shares.tolist(), strict=True)
    ]
    return labels, log_sum(logits_C)
