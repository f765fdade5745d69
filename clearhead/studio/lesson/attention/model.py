"""The same steps in one head of a real model, on the reader's own sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from clearhead.errors import ClearheadError, UsageError
from clearhead.studio.explore.promptly import promptly
from clearhead.studio.lesson.attention.head import Cell, Head, Layer, Steps, Switches, head_of, is_kept, layer_of
from clearhead.studio.lesson.attention.head_code import Row, code
from clearhead.studio.lesson.attention.stepper import Step
from clearhead.studio.operations import Answer, operation

if TYPE_CHECKING:
    from torch import Tensor

    from clearhead.studio.context import Studio

TEXT = "The cat sat on the mat because it was tired"
FIRST, UNCHANGED = Cell(), Switches()


@operation("attention.model")
def of_model(
    studio: Studio,
    *,
    model: Annotated[str, Field(max_length=200)] = "clear-gpt",
    text: Annotated[str, Field(max_length=1000)] = TEXT,
    layer: Annotated[int, Field(ge=0, le=255)] = 1,
    head: Annotated[int, Field(ge=0, le=255)] = 1,
    cell: Cell = FIRST,
    step: Step = "softmax",
    switches: Switches = UNCHANGED,
) -> Answer | Iterator[Answer]:
    """All cells of one head at every step, and the working of one of them. With the switches as they are, the numbers
    are those that the model computed on the way.
    """

    def told() -> Answer:
        read = layer_of(studio, model, text, layer)
        if head >= read.config.n_heads:
            last = read.config.n_heads - 1
            raise UsageError(f"layer {layer} of {model} has the heads 0 to {last}, and no head {head}")
        found = head_of(read, head, switches)
        q, k = _chosen(cell, found)
        return Answer(
            data={
                "model": model,
                "layer": layer,
                "step": step,
                "beta": switches.beta,
                "scale": switches.scale,
                "mask": switches.mask,
                "divisor": 1 / read.scale if switches.scale else 1.0,
                **_of_layer(read),
                **_of_cell(found, q, k),
            },
            arrays=_arrays(found, q, k),
            python=code(Row(studio.models.source(model), text, q, step), read, found, switches),
            printed=_printed(found.steps, q, step),
        )

    return promptly(is_kept(studio, model, text, layer), told)


def _chosen(cell: Cell, head: Head) -> tuple[int, int]:
    """The cell that is worked out, in a text of any length."""
    n = len(head.steps.softmax_TS)
    q = cell.q if 0 <= cell.q < n else n - 1
    if 0 <= cell.k < n:
        return q, cell.k
    # Where nothing is chosen, the likeliest thing to look at: the largest weight, the resting place at the start aside.
    return q, int(head.steps.softmax_TS[q, 1:].argmax()) + 1 if n > 1 else 0


def _of_layer(layer: Layer) -> dict[str, Any]:
    config = layer.config
    return {
        "address": layer.address,
        "tokens": layer.pieces,
        "layers": len(layer.heads),
        "heads": config.n_heads,
        "heads_by_layer": layer.heads,
        "kv_heads": config.n_kv_heads,
        "d_head": config.d_head,
        "causal": config.mask.kind == "causal",
        "window": config.mask.window,
        "rotary": config.positions is not None,
    }


def _of_cell(head: Head, q: int, k: int) -> dict[str, Any]:
    steps = head.steps
    weights_S, allowed_S = steps.softmax_TS[q], steps.mask_TS[q] > float("-inf")
    return {
        "head": head.index,
        "kv_head": head.kv_index,
        "q": q,
        "k": k,
        "untouched": head.untouched,
        "seen": int(allowed_S.sum()),
        "hidden": not bool(allowed_S[k]),
        "score": float(steps.score_TS[q, k]),
        "scaled": float(steps.scale_TS[q, k]),
        "weight": float(weights_S[k]),
        "largest": {"token": int(weights_S.argmax()), "weight": float(weights_S.max())},
    }


def _arrays(head: Head, q: int, k: int) -> dict[str, Tensor]:
    vectors, steps = head.vectors, head.steps
    return {
        "query": vectors.q_TK[q],
        "key": vectors.k_SK[k],
        "value": vectors.v_SV[k],
        "products": vectors.q_TK[q] * vectors.k_SK[k],
        "score": steps.score_TS,
        "scale": steps.scale_TS,
        "mask": steps.mask_TS,
        "softmax": steps.softmax_TS,
        "z": steps.mix_TV[q],
    }


def _printed(steps: Steps, q: int, step: Step) -> tuple[float, ...]:
    """The row of the step that is shown; of masked scores, those that are seen."""
    shown = {"score": steps.score_TS, "scale": steps.scale_TS, "softmax": steps.softmax_TS, "mix": steps.mix_TV}
    row = steps.mask_TS[q][steps.mask_TS[q] > float("-inf")] if step == "mask" else shown[step][q]
    return tuple(row.tolist())


OFFERED = ("clear-gpt", "clear-2l", "clear-bert", "gemma3-270m")


@operation("attention.models")
def models(studio: Studio) -> Answer:
    """The models that read one text by attention: those of the command line, and small ones that packages ship."""
    found = []
    for id in dict.fromkeys([*studio.models.named, *OFFERED]):
        if id not in studio.models.sources:
            continue
        try:
            about = studio.models.about(id)
        except ClearheadError:
            continue
        if about["kind"] in ("decoder", "encoder") and about["can"]["attn"] and not _sees(about):
            found.append({"id": id, "decodes": about["kind"] == "decoder"})
    missing = [
        {"id": id, "install": f'pip install "clearhead[{studio.models.missing[id]}]"'}
        for id in OFFERED
        if id in studio.models.missing
    ]
    return Answer(data={"models": found, "missing": missing})


def _sees(about: Mapping[str, Any]) -> bool:
    """Whether a model reads pictures or sounds."""
    return bool(about["can"]["pictures"] or about["can"]["sound"])
