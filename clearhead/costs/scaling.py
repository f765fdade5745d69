"""How large a model to train, on how many tokens, with so much computation: laws of scaling with their constants.

N parameters, D tokens, C = 6 N D floating-point operations, L the loss in nats a token. Kaplan's N leaves out all
embeddings, Hoffmann's counts everything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from clearhead.errors import UsageError

PF_DAY = 1e15 * 86400
"""Operations of a day at 1e15 a second, Kaplan's unit."""
KAPLAN_SIZE, KAPLAN_DATA, KAPLAN_COMPUTE = (8.8e13, 0.076), (5.4e13, 0.095), (3.1e8, 0.050)
"""N_c and alpha_N, D_c and alpha_D, C_c in PF-days and alpha_C (Kaplan 2020, equations 1.1 to 1.3)."""


@dataclass(frozen=True)
class Allocation:
    """What a law would do with a budget."""

    law: str
    source: str
    parameters: float
    tokens: float
    loss: float | None = None
    """Where the law says it. Losses of different laws are of different texts and vocabularies."""


@dataclass(frozen=True)
class ParametricLaw:
    """L(N, D) = E + A / N^alpha + B / D^beta (Hoffmann 2022, equation 2)."""

    E: float
    A: float
    B: float
    alpha: float
    beta: float

    def loss(self, parameters: float, tokens: float) -> float:
        return float(self.E + self.A / parameters**self.alpha + self.B / tokens**self.beta)

    def optimal(self, flops: float) -> tuple[float, float]:
        """N and D of the least loss where 6 N D = `flops` (equation 4)."""
        ratio = (self.alpha * self.A / (self.beta * self.B)) ** (1 / (self.alpha + self.beta))
        parameters = ratio * (flops / 6) ** self.exponent
        return parameters, flops / (6 * parameters)

    @property
    def exponent(self) -> float:
        """a, of N ~ C^a."""
        return self.beta / (self.alpha + self.beta)


HOFFMANN = ParametricLaw(E=1.6934, A=406.4, B=410.7, alpha=0.3392, beta=0.2849)
"""Hoffmann 2022, approach 3: equation 10 rounds to 1.69, .34 and .28, and these are the digits in the paper's source
(Besiroglu 2024, table 1), which give its own exponent of .46."""
BESIROGLU = ParametricLaw(E=1.8172, A=482.01, B=2085.43, alpha=0.3478, beta=0.3658)
"""The same form fitted anew to the points of Hoffmann's figure 4, whose own fit had stopped too early (Besiroglu 2024,
Chinchilla scaling: a replication attempt, table 1)."""


def kaplan_loss(parameters: float, tokens: float) -> float:
    """L(N, D) = ((N_c / N)^(alpha_N / alpha_D) + D_c / D)^alpha_D (Kaplan 2020, equation 1.5), with the constants of
    equations 1.1 and 1.2, to which it comes down where the other is endless.
    """
    (n_c, alpha_n), (d_c, alpha_d) = KAPLAN_SIZE, KAPLAN_DATA
    return float(((n_c / parameters) ** (alpha_n / alpha_d) + d_c / tokens) ** alpha_d)


def kaplan(flops: float) -> Allocation:
    """N = 1.3e9 C^0.73, C in PF-days (Kaplan 2020, table 6); L = (3.1e8 / C)^0.050 (equation 1.3)."""
    days = flops / PF_DAY
    parameters = 1.3e9 * days**0.73
    c_c, alpha_c = KAPLAN_COMPUTE
    loss = (c_c / days) ** alpha_c
    return Allocation("Kaplan", "Kaplan 2020, table 6", parameters, flops / (6 * parameters), loss)


def frontier(flops: float) -> Allocation:
    """N ~ C^0.50 (Hoffmann 2022, table 2, approach 1: the lower edge of all training curves), through the row of table
    3 that has 67 billion parameters for 5.76e23 operations.
    """
    parameters = 67e9 * (flops / 5.76e23) ** 0.50
    return Allocation("Chinchilla 1", "Hoffmann 2022, approach 1", parameters, flops / (6 * parameters))


def isoflop(flops: float) -> Allocation:
    """N ~ C^0.49 (Hoffmann 2022, table 2, approach 2: the best of several sizes for each of nine budgets), through the
    row of table A3 that has 67 billion parameters for 6.88e23 operations.
    """
    parameters = 67e9 * (flops / 6.88e23) ** 0.49
    return Allocation("Chinchilla 2", "Hoffmann 2022, approach 2", parameters, flops / (6 * parameters))


def parametric(law: ParametricLaw, name: str, source: str) -> Callable[[float], Allocation]:
    """What a parametric law does with a budget."""

    def allocate(flops: float) -> Allocation:
        parameters, tokens = law.optimal(flops)
        return Allocation(name, source, parameters, tokens, law.loss(parameters, tokens))

    return allocate


LAWS: tuple[Callable[[float], Allocation], ...] = (
    kaplan,
    frontier,
    isoflop,
    parametric(HOFFMANN, "Chinchilla 3", "Hoffmann 2022, approach 3"),
    parametric(BESIROGLU, "Chinchilla 3, refitted", "Besiroglu 2024"),
)


def allocations(flops: float) -> list[Allocation]:
    """What each law would do with a budget of so many floating-point operations.

    Raises:
        UsageError: the budget is not more than 0.
    """
    if not 0 < flops < float("inf"):
        raise UsageError(f"a budget is a number of floating-point operations above 0, as in 1e21, and not {flops:g}")
    return [law(flops) for law in LAWS]
