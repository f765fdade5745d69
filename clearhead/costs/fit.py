"""A law of scaling of your own: fitted to runs, with an interval for each constant and a picture."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from clearhead.costs.charts import Chart
from clearhead.costs.curves import Axes, Curve
from clearhead.costs.runs import Run
from clearhead.costs.scaling import Allocation, ParametricLaw, parametric
from clearhead.costs.units import digits, in_counts
from clearhead.errors import ClearheadError

if TYPE_CHECKING:
    from rich.console import Console

Floats = NDArray[np.float64]
DRAWS = 200
"""Times that a law is fitted anew, to runs with their deviations dealt out again."""
LEAST_FOR_BOTH, LEAST_FOR_ONE = 6, 3
"""Runs that differ: one more than there are constants."""
EXPONENTS = (0.03, 1.5)
"""Between these alpha and beta are looked for."""


@dataclass(frozen=True)
class PowerLaw:
    """L = (scale / x) ^ exponent, of the parameters or of the tokens alone (Kaplan 2020, equations 1.1 and 1.2)."""

    scale: float
    exponent: float
    of: str
    """N or D."""

    def loss(self, parameters: float, tokens: float) -> float:
        return float((self.scale / (parameters if self.of == "N" else tokens)) ** self.exponent)


class Interval(NamedTuple):
    """A constant, and where 95 of 100 fits to such runs have it."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Fit:
    """A law and the runs it was fitted to."""

    runs: tuple[Run, ...]
    law: ParametricLaw | PowerLaw
    intervals: Mapping[str, Interval]
    r_squared: float
    """The share of the variance of log L that the law explains."""

    @property
    def formula(self) -> str:
        if isinstance(self.law, PowerLaw):
            return f"L({self.law.of}) = (scale / {self.law.of})^exponent"
        return "L(N, D) = E + A / N^alpha + B / D^beta"

    def allocation(self, flops: float) -> Allocation | None:
        """What it would do with a budget; None where it knows one of N and D alone."""
        if isinstance(self.law, PowerLaw):
            return None
        return parametric(self.law, "yours", f"fitted to {len(self.runs)} runs")(flops)

    def to_json(self) -> dict[str, Any]:
        return {
            "formula": self.formula,
            "constants": {name: interval._asdict() for name, interval in self.intervals.items()},
            "r_squared": self.r_squared,
            "runs": [asdict(run) for run in self.runs],
        }

    def charts(self) -> tuple[Chart, ...]:
        """The losses of the runs as points, and the law as lines: one for each number of tokens (or of parameters)."""
        along_tokens = isinstance(self.law, PowerLaw) and self.law.of == "D"
        place: Callable[[Run], int] = (lambda r: r.tokens) if along_tokens else (lambda r: r.parameters)
        others = sorted({r.parameters if along_tokens else r.tokens for r in self.runs})
        xs = np.geomspace(min(map(place, self.runs)), max(map(place, self.runs)), 40).tolist()
        curves = []
        for other in others[:: max(1, len(others) // 4)]:
            said = f"{in_counts(other)} {'parameters' if along_tokens else 'tokens'}"
            pairs = [(x, self.law.loss(other, x) if along_tokens else self.law.loss(x, other)) for x in xs]
            curves.append(Curve(said, pairs))
        curves.append(Curve("runs", [(place(run), run.loss) for run in self.runs], dots=True))
        across = "tokens" if along_tokens else "parameters"
        axes = Axes(digits, in_counts, across, from_zero=False, log_x=True, log_y=True)
        return (Chart(f"Held-out loss of {len(self.runs)} runs", tuple(curves), axes),)

    def print(self, console: Console | None = None) -> None:
        """Constants with their intervals, and how well they fit."""
        from rich.console import Console

        from clearhead.costs.show import print_rows

        rows = [("", "", "95 of 100 such fits")]
        rows += [
            (name, digits(i.value, 4), f"{digits(i.low)} to {digits(i.high)}") for name, i in self.intervals.items()
        ]
        title = f"{self.formula}: {len(self.runs)} runs, R² {self.r_squared:.3f}"
        print_rows(console or Console(), title, rows, {1})


def fit(runs: Sequence[Run], *, draws: int = DRAWS, seed: int = 0) -> Fit:
    """The law that runs follow: of N and D where both differ between them, or of the one that does.

    Least squares of relative errors; of N and D all exponents are tried, and for each pair the best E, A and B, none
    below zero, are known at once. Intervals are of a bootstrap of residuals (Efron and Tibshirani 1993, section 9.4).

    Raises:
        ClearheadError: there are too few runs for it, or losses that no law has.
    """
    n, d, loss = (np.array([getattr(run, name) for run in runs], float) for name in ("parameters", "tokens", "loss"))
    if not bool((loss > 0).all() and np.isfinite(loss).all()):
        raise ClearheadError("a held-out loss is not above 0, so it follows no power law")
    sizes, lengths = len(set(n.tolist())), len(set(d.tolist()))
    both, of = sizes > 1 and lengths > 1, "D" if lengths > 1 else "N"
    if both:
        _enough(len({(run.parameters, run.tokens) for run in runs}), LEAST_FOR_BOTH, "sizes and numbers of tokens")
    else:
        _enough(max(sizes, lengths), LEAST_FOR_ONE, "numbers of tokens" if of == "D" else "sizes")
    names = ("E", "A", "B", "alpha", "beta") if both else ("scale", "exponent")

    def solve(losses: Floats) -> Floats:
        return _parametric(n, d, losses) if both else _power(d if of == "D" else n, losses)

    found = solve(loss)
    constants: list[float] = found.tolist()
    law = ParametricLaw(*constants) if both else PowerLaw(constants[0], constants[1], of)
    if isinstance(law, PowerLaw) and not law.exponent > 0:
        raise ClearheadError(f"the losses do not fall as {of} grows, so they follow no power law")
    fitted = np.array([law.loss(*pair) for pair in zip(n, d, strict=True)])
    off = np.log(loss) - np.log(fitted)
    # Residuals are smaller than the errors behind them, by what the constants took up.
    off *= np.sqrt(len(runs) / max(1, len(runs) - len(names)))
    random = np.random.default_rng(seed)
    drawn = np.array([solve(fitted * np.exp(random.choice(off - off.mean(), len(off)))) for _ in range(draws)])
    columns, values = dict(zip(names, drawn.T, strict=True)), dict(zip(names, constants, strict=True))
    if "alpha" in columns:
        columns["N ~ C^"] = columns["beta"] / (columns["alpha"] + columns["beta"])
        values["N ~ C^"] = values["beta"] / (values["alpha"] + values["beta"])
    low_high = {name: np.percentile(column, [2.5, 97.5]).tolist() for name, column in columns.items()}
    intervals = {name: Interval(value, *low_high[name]) for name, value in values.items()}
    spread = np.log(loss) - np.log(loss).mean()
    left = np.log(loss) - np.log(fitted)
    return Fit(tuple(runs), law, intervals, 1 - float((left**2).sum() / (spread**2).sum()))


def _enough(n: int, least: int, what: str) -> None:
    if n < least:
        raise ClearheadError(f"there are runs of {n} different {what}; a law needs {least} or more")


def _power(x: Floats, loss: Floats) -> Floats:
    """Scale and exponent of the straight line through the logarithms."""
    slope, level = np.polyfit(np.log(x), np.log(loss), 1)
    return np.array([np.exp(-level / slope), -slope])


def _parametric(n: Floats, d: Floats, loss: Floats) -> Floats:
    """E, A, B, alpha, beta: exponents on a grid that closes in on the best."""
    middle_n, middle_d = np.exp(np.log(n).mean()), np.exp(np.log(d).mean())
    low, high = np.log(EXPONENTS[0]), np.log(EXPONENTS[1])
    alphas = betas = np.exp(np.linspace(low, high, 20))
    step = (high - low) / 19
    for _ in range(8):
        pairs = np.stack(np.meshgrid(alphas, betas, indexing="ij"), -1).reshape(-1, 2)
        columns = [np.ones((len(pairs), len(n)))]
        columns += [(x / m) ** -pairs[:, i : i + 1] for i, (x, m) in enumerate(((n, middle_n), (d, middle_d)))]
        scales, errors = _not_negative(np.stack(columns, -1) / loss[:, None])
        best = int(errors.argmin())
        alpha, beta = pairs[best]
        around = np.exp(np.linspace(-step, step, 7))
        alphas, betas = (np.clip(centre * around, *EXPONENTS) for centre in (alpha, beta))
        step /= 3
    e, a, b = scales[best]
    return np.array([e, a * middle_n**alpha, b * middle_d**beta, alpha, beta])


def _not_negative(x_PRC: Floats) -> tuple[Floats, Floats]:
    """For each of P problems the scales (P, C) of the columns, none below zero, whose sums (P, R) are nearest to 1, and
    the squared error: the best of all choices of columns that leave none below zero.
    """
    n_problems, n_rows, n_columns = x_PRC.shape
    best, error = np.zeros((n_problems, n_columns)), np.full(n_problems, float(n_rows))
    for n in range(1, n_columns + 1):
        for chosen in combinations(range(n_columns), n):
            part = x_PRC[..., chosen]
            square = part.mT @ part + 1e-12 * np.eye(n)
            scales = np.linalg.solve(square, part.sum(axis=1)[..., None])[..., 0]
            off = (((part @ scales[..., None])[..., 0] - 1) ** 2).sum(axis=1)
            better = (scales >= 0).all(axis=1) & (off < error)
            error = np.where(better, off, error)
            whole = np.zeros_like(best)
            whole[:, chosen] = scales
            best = np.where(better[:, None], whole, best)
    return best, error
