"""How many steps lie between two tokens, and how many must wait for one another."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

from pydantic import Field

from clearhead.claims.ingredients.recurrent_nets import network
from clearhead.claims.ingredients.small_models import new_model
from clearhead.claims.recurrence.path_length_one import MADE, attention_layer, nearly_linear, path_length
from clearhead.costs import counts
from clearhead.costs.time import sequential_steps
from clearhead.model.transformer import Transformer
from clearhead.studio.lesson.drawing import DRAWING
from clearhead.studio.operations import Answer, operation

FARTHEST = 50
SHORT = (8, 32)
"""At so many tokens the operations that wait are counted, and not only worked out."""

PATHS = """\
from clearhead.claims.ingredients.recurrent_nets import network
from clearhead.claims.recurrence.path_length_one import MADE, attention_layer, nearly_linear, path_length

# Change the first token; hold up each token between: through which of them does the change have to go?
print("RNN", path_length(nearly_linear(network("simple", 0)), MADE["simple RNN"], {distance}, 0))
print("attention", path_length(attention_layer(0), MADE["attention"], {distance}, 0))
"""
WAITING = """\
from clearhead.claims.recurrence.training_speed import MODELS
from clearhead.costs import counts
from clearhead.costs.time import sequential_steps

for name, config in MODELS.items():
    print(name, sequential_steps(counts(config), {tokens}))
"""


@operation("recurrence.paths")
def paths(*, distance: Annotated[int, Field(ge=1, le=FARTHEST)] = 6) -> Answer:
    """The steps from one token to another so many tokens on, measured by holding up what stands between."""
    found = {name: _path(name, distance) for name in ("simple RNN", "attention")}
    return Answer(
        data={
            "distance": distance,
            "RNN": found["simple RNN"],
            "attention": found["attention"],
            "through": {"RNN": found["simple RNN"] - 1, "attention": found["attention"] - 1},
        },
        python=PATHS.format(distance=distance),
        printed=tuple(found.values()),
    )


@operation("recurrence.waiting")
def waiting(*, tokens: Annotated[int, Field(ge=1, le=100_000)] = 1000) -> Answer:
    """The steps of a text's pass that wait for one another, in three networks of two layers and as many parameters; and
    for short texts the longest chain of operations in the graph of a training step, counted.
    """
    # Its models' widths are searched for at import.
    from clearhead.claims.recurrence.training_speed import MODELS

    steps = {name: sequential_steps(counts(config), tokens) for name, config in MODELS.items()}
    return Answer(
        data={
            "tokens": tokens,
            "steps": steps,
            "parameters": {name: counts(config).parameters.total for name, config in MODELS.items()},
            "chains": [{"tokens": n, **_chains(n)} for n in SHORT],
        },
        python=WAITING.format(tokens=tokens),
        printed=tuple(float(n) for n in steps.values()),
    )


@cache
def _model(name: str) -> Transformer:
    with DRAWING:
        return attention_layer(0) if name == "attention" else nearly_linear(network("simple", 0))


@cache
def _path(name: str, distance: int) -> float:
    return path_length(_model(name), MADE[name], distance, 0)


@cache
def _chains(tokens: int) -> dict[str, Any]:
    from clearhead.claims.recurrence.training_speed import MODELS, chain

    with DRAWING:
        models = {name: new_model(config, 0) for name, config in MODELS.items()}
    return {name: chain(model, tokens) for name, model in models.items()}
