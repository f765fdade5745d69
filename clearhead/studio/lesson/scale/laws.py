"""Chapter 8: loss as a power law of parameters, data and computation, with published constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import Field

from clearhead.costs.scaling import (
    BESIROGLU,
    HOFFMANN,
    KAPLAN_COMPUTE,
    KAPLAN_DATA,
    KAPLAN_SIZE,
    PF_DAY,
    ParametricLaw,
    allocations,
    kaplan,
    kaplan_loss,
)
from clearhead.studio.operations import Answer, operation

Of = Literal["parameters", "data", "compute"]
RANGES: dict[Of, tuple[float, float]] = {"parameters": (6.0, 13.0), "data": (8.0, 14.0), "compute": (17.0, 27.0)}
"""Powers of ten that each curve goes from and to."""
KAPLANS: dict[Of, tuple[float, float]] = {"parameters": KAPLAN_SIZE, "data": KAPLAN_DATA, "compute": KAPLAN_COMPUTE}
"""Of each curve, what is divided by, and the power of the quotient."""
POINTS = 49
Law = Callable[[float], float]
LAWS: dict[Of, dict[str, Law]] = {
    "parameters": {
        "Kaplan 2020": lambda n: kaplan_loss(n, math.inf),
        "Hoffmann 2022": lambda n: HOFFMANN.loss(n, math.inf),
        "Besiroglu 2024": lambda n: BESIROGLU.loss(n, math.inf),
    },
    "data": {
        "Kaplan 2020": lambda n: kaplan_loss(math.inf, n),
        "Hoffmann 2022": lambda n: HOFFMANN.loss(math.inf, n),
        "Besiroglu 2024": lambda n: BESIROGLU.loss(math.inf, n),
    },
    "compute": {
        "Kaplan 2020": lambda c: float(kaplan(c).loss or 0.0),
        "Hoffmann 2022": lambda c: HOFFMANN.loss(*HOFFMANN.optimal(c)),
        "Besiroglu 2024": lambda c: BESIROGLU.loss(*BESIROGLU.optimal(c)),
    },
}


@operation("scale.laws")
def laws(*, of: Of = "compute", power: Annotated[float, Field(ge=6, le=27)] = 21.0) -> Answer:
    """The loss that three laws expect, where `of` is ten to this power and nothing else is short."""
    low, high = RANGES[of]
    power = min(max(power, low), high)
    at = 10.0**power
    places = sorted({at, *(10.0 ** (low + (high - low) * i / (POINTS - 1)) for i in range(POINTS))})
    values = {name: law(at) for name, law in LAWS[of].items()}
    told: list[dict[str, Any]] = [
        {
            "name": name,
            "x": places,
            "y": [law(place) for place in places],
            "at": values[name],
            "terms": _terms(name, of, at),
        }
        for name, law in LAWS[of].items()
    ]
    kaplans = LAWS[of]["Kaplan 2020"]
    return Answer(
        data={
            "of": of,
            "curves": told,
            "power": power,
            "ranges": {name: list(ends) for name, ends in RANGES.items()},
            "constant": KAPLANS[of][0],
            "alpha": KAPLANS[of][1],
            "at": at,
            "ten_times": kaplans(10 * at) / kaplans(at),
            "exponent": -math.log10(kaplans(10 * at) / kaplans(at)),
            "days": at / PF_DAY if of == "compute" else None,
            "sizes": _sizes(at) if of == "compute" else [],
        },
        python=_LAWS[of].format(at=at),
        printed=tuple(values.values()),
    )


PARAMETRIC = {"Hoffmann 2022": HOFFMANN, "Besiroglu 2024": BESIROGLU}


def _terms(name: str, of: Of, at: float) -> dict[str, float | None] | None:
    """The constants of a law of two terms, and what is put into it; None of a law that is a single power."""
    law = PARAMETRIC.get(name)
    if law is None:
        return None
    sizes = law.optimal(at) if of == "compute" else (at, None) if of == "parameters" else (None, at)
    return {**asdict(law), "parameters": sizes[0], "tokens": sizes[1]}


def _sizes(flops: float) -> list[dict[str, Any]]:
    """What each law would train with the budget."""
    return [
        {
            "law": one.law,
            "source": one.source,
            "parameters": one.parameters,
            "tokens": one.tokens,
            "formula": formula,
            "put": put,
        }
        for one, (formula, put) in zip(allocations(flops), _allotted(flops), strict=True)
    ]


def _allotted(flops: float) -> list[tuple[str, str]]:
    """How each of `allocations` comes to its number of parameters: as TeX, and with the values put in."""
    return [
        (r"N=1.3\cdot10^9\,C^{0.73},\ C\text{ in petaflop-days}", f"1.3e9 × {flops / PF_DAY:.6g}^0.73"),
        (r"N\propto C^{0.50}", f"67e9 × ({flops:.4g} / 5.76e23)^0.50"),
        (r"N\propto C^{0.49}", f"67e9 × ({flops:.4g} / 6.88e23)^0.49"),
        *((PARAMETRIC_SIZE, _size_put_in(law, flops)) for law in (HOFFMANN, BESIROGLU)),
    ]


PARAMETRIC_SIZE = (
    r"N=\left(\tfrac{\alpha A}{\beta B}\right)^{1/(\alpha+\beta)}\left(\tfrac C6\right)^{\beta/(\alpha+\beta)}"
)


def _size_put_in(law: ParametricLaw, flops: float) -> str:
    both = round(law.alpha + law.beta, 4)
    ratio = f"({law.alpha} × {law.A} / ({law.beta} × {law.B}))^(1 / {both})"
    return f"{ratio} × ({flops:.4g} / 6)^({law.beta} / {both})"


_LAWS: dict[Of, str] = {
    "parameters": """\
import math
from clearhead.costs.scaling import BESIROGLU, HOFFMANN, kaplan_loss

n = {at!r}  # parameters, with text without end
print("Kaplan:", kaplan_loss(n, math.inf))
print("Hoffmann:", HOFFMANN.loss(n, math.inf))
print("Besiroglu:", BESIROGLU.loss(n, math.inf))
""",
    "data": """\
import math
from clearhead.costs.scaling import BESIROGLU, HOFFMANN, kaplan_loss

d = {at!r}  # tokens, with a model without end
print("Kaplan:", kaplan_loss(math.inf, d))
print("Hoffmann:", HOFFMANN.loss(math.inf, d))
print("Besiroglu:", BESIROGLU.loss(math.inf, d))
""",
    "compute": """\
from clearhead.costs.scaling import BESIROGLU, HOFFMANN, kaplan

c = {at!r}  # floating-point operations of training, spent as each law says
print("Kaplan:", kaplan(c).loss)
print("Hoffmann:", HOFFMANN.loss(*HOFFMANN.optimal(c)))
print("Besiroglu:", BESIROGLU.loss(*BESIROGLU.optimal(c)))
""",
}
