"""A query among keys on a plane: the weights, and the blend of the values."""

from __future__ import annotations

from math import cos, log, radians, sin
from typing import Annotated

import torch
from pydantic import Field

from clearhead.claims.ingredients.one_head import entropy, one_head, scale_of
from clearhead.studio.lesson.lookup.winds import KEYS, VALUES
from clearhead.studio.operations import Answer, operation

LONGEST = 4.0
DIGITS = 4
"""Of the query on the plane, as the keys have them."""
NEAR = 1e-9
ALIKE = 1e-3
"""Weights as close as this are told as one."""

PYTHON = """\
import torch
from clearhead.claims.ingredients.one_head import one_head, scale_of

keys = {keys}
values = {values}
query = {query}

q, k, v = (
    torch.tensor(rows, dtype=torch.float64)[None]
    for rows in ([query], list(keys.values()), list(values.values()))
)
trace = one_head(q, k, v, scale={sharpness} * scale_of(2))
for name, weight in zip(keys, trace.pattern_BHTS[0, 0, 0].tolist()):
    print(name, weight)
print("degrees and millimetres:", *trace.z_BHTV[0, 0, 0].tolist())
"""


@operation("lookup.plane")
def plane(
    *,
    bearing: Annotated[float, Field(ge=0, le=360)] = 135.0,
    length: Annotated[float, Field(ge=0, le=LONGEST)] = 1.3,
    sharpness: Annotated[float, Field(ge=0, le=20)] = 1.0,
) -> Answer:
    """The library's attention from one query to the keys, beside what a dictionary and a hard lookup give for it. The
    query is where a wind of this length comes from, in degrees from north by east.
    """
    x, y = (round(length * turned(radians(bearing)), DIGITS) for turned in (sin, cos))
    sharpness = round(sharpness, 6)
    q_11K, k_1SK, v_1SV = (
        torch.tensor(rows, dtype=torch.float64)[None] for rows in ([[x, y]], list(KEYS.values()), list(VALUES.values()))
    )
    scale = sharpness * scale_of(2)
    trace = one_head(q_11K, k_1SK, v_1SV, scale=scale)
    weights_S, scores_S, blend_V = trace.pattern_BHTS[0, 0, 0], trace.scores_BHTS[0, 0, 0], trace.z_BHTV[0, 0, 0]
    names = list(KEYS)
    exact = next((name for name, key in KEYS.items() if max(abs(key[0] - x), abs(key[1] - y)) < NEAR), None)
    best = names[int(scores_S.argmax())]
    weights = weights_S.tolist()
    return Answer(
        data={
            "names": names,
            "keys": list(KEYS.values()),
            "values": list(VALUES.values()),
            "weights": weights,
            "scores": scores_S.tolist(),
            "dots": [x * a + y * b for a, b in KEYS.values()],
            "scale": scale,
            "blend": blend_V.tolist(),
            "exact": exact,
            "hard": {"name": best, "value": VALUES[best], "weight": max(weights)},
            "most": [name for name, weight in zip(names, weights, strict=True) if weight > max(weights) - ALIKE],
            "spread": float(entropy(weights_S)),
            "even": log(len(names)),
            "query": [x, y],
            "sharpness": sharpness,
            "length": length,
            "bearing": bearing,
        },
        python=PYTHON.format(keys=KEYS, values=VALUES, query=[x, y], sharpness=sharpness),
        printed=(*weights, *blend_V.tolist()),
    )
