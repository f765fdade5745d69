"""A matrix in the factor's place: its largest singular value bounds what a step multiplies by."""

from __future__ import annotations

from math import cos, radians, sin
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from clearhead.claims.ingredients.recurrent_nets import gradient_by_lag, network, recurrent_matrix
from clearhead.studio.lesson.drawing import DRAWING
from clearhead.studio.operations import Answer, operation

LONGEST = 40
AROUND = 72
Stretch = Annotated[float, Field(ge=0.5, le=1.5)]

PYTHON = """\
import torch
from clearhead.claims.ingredients.recurrent_nets import gradient_by_lag, network, recurrent_matrix

net = network("simple", 0, n_units=2, silent=True)
with torch.no_grad():
    recurrent_matrix(net).copy_(torch.tensor({rows}))
largest = float(torch.linalg.matrix_norm(recurrent_matrix(net).detach(), 2))
print("largest singular value", largest)
print("spectral radius", float(torch.linalg.eigvals(recurrent_matrix(net).detach()).abs().max()))
print("gradient that is left", gradient_by_lag(net, {longest}, 0)[{steps}])
print("its bound", largest**{steps})
"""


@operation("recurrence.matrix")
def matrix(
    *,
    first: Stretch = 1.2,
    second: Stretch = 0.7,
    turn: Annotated[float, Field(ge=0, le=90)] = 60,
    steps: Annotated[int, Field(ge=1, le=LONGEST)] = 10,
) -> Answer:
    """A 2 x 2 matrix that stretches by two singular values and then turns by so many degrees, in a linear network of
    two units: where it sends the unit circle, and how much gradient it leaves, over the bound that its largest
    singular value sets.
    """
    with DRAWING:
        net = network("simple", 0, n_units=2, silent=True)
    wanted_FF = _turned(turn) @ torch.diag(torch.tensor([first, second], dtype=torch.float64))
    # Six digits, so that the code on the page has the same matrix.
    rows = [[round(x, 6) for x in row] for row in wanted_FF.tolist()]
    with torch.no_grad():
        recurrent_matrix(net).copy_(torch.tensor(rows, dtype=torch.float64))
    w_FF = recurrent_matrix(net).detach()
    largest = float(torch.linalg.matrix_norm(w_FF, 2))
    eigenvalues = torch.linalg.eigvals(w_FF)
    radius = float(eigenvalues.abs().max())
    left = gradient_by_lag(net, LONGEST, 0)
    bound = [largest**k for k in range(LONGEST + 1)]
    circle_2N = _circle()
    return Answer(
        data={
            "steps": steps,
            "rows": rows,
            "largest": largest,
            "radius": radius,
            "eigenvalues": [[one.real, one.imag] for one in eigenvalues.tolist()],
            "left": left[steps],
            "bound": bound[steps],
            "share": left[steps] / bound[steps],
        },
        arrays={
            "circle": circle_2N.T,
            "once": (w_FF @ circle_2N).T,
            "power": (torch.linalg.matrix_power(w_FF, steps) @ circle_2N).T,
            "left": torch.tensor(left),
            "bound": torch.tensor(bound),
        },
        python=PYTHON.format(rows=rows, steps=steps, longest=LONGEST),
        printed=(largest, radius, left[steps], bound[steps]),
    )


def _turned(degrees: float) -> Tensor:
    a = radians(degrees)
    return torch.tensor([[cos(a), -sin(a)], [sin(a), cos(a)]], dtype=torch.float64)


def _circle() -> Tensor:
    angles_N = torch.linspace(0, 2 * torch.pi, AROUND + 1, dtype=torch.float64)
    return torch.stack([angles_N.cos(), angles_N.sin()])
