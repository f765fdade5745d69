"""Chapter 6: the model as one diagram, and how long the stream is at each of its steps (S40, S41)."""

from __future__ import annotations

from typing import Any

from clearhead.lens.stream import Addition
from clearhead.studio.context import Studio
from clearhead.studio.lesson.block.reading import TEXT, ModelId, Pass, Text, after, passed, slot_of
from clearhead.studio.operations import Answer, operation


@operation("block.diagram")
def diagram(studio: Studio, *, model: ModelId = "clear-gpt", text: Text = TEXT, token: int = -1) -> Answer:
    """The boxes of a model, and how long the stream of one token and each correction to it are."""
    found = passed(studio, model, text)
    slot = slot_of(found, token)
    total = found.plan.total
    steps = [_step(found, addition, slot) for addition in found.additions]
    blocks = sum(part.n_parameters for layer in found.plan.layers for part in layer)
    in_mlp = sum(part.n_parameters for layer in found.plan.layers for part in layer if part.kind == "mlp")
    # The stream before the first block and after the last.
    ends = ["embed", f"layers.{len(found.plan.layers) - 1}.resid_post"]
    return Answer(
        data={
            "model": model,
            "tokens": found.pieces,
            "token": slot,
            "cut": found.cut,
            "d_model": found.model.config.d_model,
            "embed": found.plan.embed.told_as_json(),
            "layers": [[part.told_as_json() for part in layer] for layer in found.plan.layers],
            "words": found.plan.words,
            "end": [part.told_as_json() for part in found.plan.end],
            "total": total,
            "per_block": [sum(part.n_parameters for part in layer) for layer in found.plan.layers],
            "blocks": blocks,
            "mlp_share": in_mlp / blocks if blocks else 0.0,
            "start": float(found.seen["embed"][0, slot].norm()),
            "rms": {name: float(found.seen[name][0, slot].square().mean().sqrt()) for name in ends},
            "ends": ends,
            "steps": steps,
        },
        python=_DIAGRAM.format(model=found.source),
        printed=(float(total),),
    )


@operation("block.models")
def models(studio: Studio) -> Answer:
    """The models that the diagram can show. It reads every model's config, which takes longer than a diagram."""
    return Answer(data={"models": [one["id"] for one in studio.models.listing() if _offered(one)]})


def _offered(one: dict[str, Any]) -> bool:
    """Whether a model of the listing is one stack that reads text."""
    return one.get("vocab") is not None and one.get("kind") in ("decoder", "encoder") and "error" not in one


def _step(found: Pass, addition: Addition, slot: int) -> dict[str, Any]:
    correction_D = found.seen[addition.out][0, slot]
    return {
        "layer": addition.layer,
        "kind": addition.kind,
        "correction": float(correction_D.norm()),
        "stream": float(after(found, addition)[slot].norm()),
    }


_DIAGRAM = """\
import clearhead

model = clearhead.load({model})
print("parameters:", sum(p.numel() for p in model.parameters()))
"""
