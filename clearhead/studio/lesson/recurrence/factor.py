"""What is left of a gradient after so many steps: a factor to their power, and three real networks."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Annotated

import torch
from pydantic import Field

from clearhead.claims.ingredients.recurrent_nets import gradient_by_lag, network
from clearhead.claims.recurrence import path_length_one
from clearhead.studio.lesson.drawing import DRAWING
from clearhead.studio.operations import Answer, operation

LONGEST = 100
EXAMPLES = ((0.9, 30), (0.9, 40), (1.1, 100))
Steps = Annotated[int, Field(ge=1, le=LONGEST)]

PYTHON = """\
from clearhead.claims.ingredients.recurrent_nets import gradient_by_lag, network
from clearhead.claims.recurrence import path_length_one

# One linear unit, h_t = w h_(t-1): automatic differentiation, step by step back.
def left(factor, steps):
    unit = network("simple", 0, n_units=1, silent=True, gain=factor)
    return gradient_by_lag(unit, {longest}, 0)[steps]

for factor, steps in ({factor!r}, {steps}), (0.9, 30), (0.9, 40), (1.1, 100):
    print(left(factor, steps))

# An RNN, an LSTM and a layer of attention, 64 wide, as they are before training.
print("RNN", gradient_by_lag(network("simple", 0), {longest}, 0)[{steps}])
print("LSTM", gradient_by_lag(network("lstm", 0), {longest}, 0)[{steps}])
back = path_length_one.gradient_by_lag(path_length_one.attention_layer(0), {longest}, 0)
print("attention", back[{steps}] / back[1])
"""


@operation("recurrence.gradient")
def gradient(*, factor: Annotated[float, Field(ge=0.5, le=1.5)] = 0.9, steps: Steps = 30) -> Answer:
    """The gradient of one linear unit at every step back, as a multiple of that at the last step; and the same of three
    networks of 64 units that have learned nothing yet. Attention's is over that one token back, for the last token
    itself has paths of its own.
    """
    factor = round(factor, 6)
    curves = {"factor": power(factor), **networks()}
    left = {name: curve[steps] for name, curve in curves.items()}
    examples = [{"factor": f, "steps": k, "left": power(f)[k]} for f, k in EXAMPLES]
    return Answer(
        data={"left": left, "examples": examples, "steps": steps, "factor": factor},
        arrays={name: torch.tensor(curve, dtype=torch.float64) for name, curve in curves.items()},
        python=PYTHON.format(factor=factor, steps=steps, longest=LONGEST),
        printed=(left["factor"], *(power(f)[k] for f, k in EXAMPLES), left["RNN"], left["LSTM"], left["attention"]),
    )


@lru_cache(maxsize=1024)
def power(factor: float) -> list[float]:
    with DRAWING:
        unit = network("simple", 0, n_units=1, silent=True, gain=factor)
    return gradient_by_lag(unit, LONGEST, 0)


@cache
def networks() -> dict[str, list[float]]:
    with DRAWING:
        rnn, lstm, layer = network("simple", 0), network("lstm", 0), path_length_one.attention_layer(0)
    attention = path_length_one.gradient_by_lag(layer, LONGEST, 0)
    return {
        "RNN": gradient_by_lag(rnn, LONGEST, 0),
        "LSTM": gradient_by_lag(lstm, LONGEST, 0),
        "attention": [left / attention[1] for left in attention],
    }
