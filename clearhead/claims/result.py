"""What a claim came to: its numbers over seeds, each mark with its verdict, and ways to show them."""

from __future__ import annotations

import io
import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from clearhead.claims import words
from clearhead.claims.catalogue import chapter_of
from clearhead.claims.claim import Claim, Mark
from clearhead.claims.extras import DRAWING, missing
from clearhead.claims.seeds import Seed
from clearhead.claims.verdict import FAILS, HOLDS, OPEN, Estimate, Verdict, counts, estimates, held, judge
from clearhead.costs.units import in_seconds
from clearhead.errors import ClearheadError
from clearhead.lens.views.drawn import Figure

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


@dataclass(frozen=True)
class Judged:
    """A mark, and what was measured against it."""

    mark: Mark
    number: Estimate
    verdict: Verdict


@dataclass(frozen=True)
class Result(Figure):
    """A claim, measured. It prints itself, and draws itself in a notebook; every number is in `to_json()`."""

    name: str
    claim: Claim
    quick: bool
    seeds: tuple[Seed, ...]

    @property
    def numbers(self) -> dict[str, Estimate]:
        """All that was measured, over seeds."""
        return estimates([seed.measured for seed in self.seeds])

    @property
    def marks(self) -> list[Judged]:
        """Those that count in this kind of run."""
        numbers = self.numbers
        counting = [mark for mark in self.claim.marks if counts(mark, quick=self.quick)]
        return [Judged(mark=mark, verdict=held(mark, numbers), number=numbers[mark.of]) for mark in counting]

    @property
    def verdict(self) -> Verdict:
        return judge(self.claim.marks, [seed.measured for seed in self.seeds], quick=self.quick)

    @property
    def deciding(self) -> Judged:
        """The mark that the verdict hangs on: the first that does not hold, or can't be told, or the first of all."""
        return next(one for verdict in (FAILS, OPEN, HOLDS) for one in self.marks if one.verdict == verdict)

    @property
    def seconds(self) -> float:
        return sum(seed.seconds for seed in self.seeds)

    @property
    def command(self) -> str:
        """What is typed to measure it again."""
        usual = 1 if self.quick else self.claim.seeds
        more = "" if len(self.seeds) == usual else f" --seeds {len(self.seeds)}"
        return f"clearhead claim {self.name}{' --quick' if self.quick else ''}{more}"

    # ---- shown

    def parts(self, console: Console) -> list[RenderableType]:
        from rich.text import Text

        from clearhead.claims.tables import table, verdict

        head = Text.assemble((self.name, "bold"), f"  {words.statements(self.claim.source.statements)}  ")
        judged = {one.mark.of for one in self.marks}
        rows: list[tuple[str | Text, ...]] = [
            (words.name(m.mark.of), words.measured(m.number, m.mark.unit), words.mark(m.mark), verdict(m.verdict))
            for m in self.marks
        ]
        rows += [(words.name(of), words.measured(x), "", "") for of, x in self.numbers.items() if of not in judged]
        numbers = table(("number", "measured", "mark", "verdict"), rows)
        return [head + verdict(self.verdict), Text(self.claim.says), Text(), numbers, Text(), Text(self.took, "dim")]

    @property
    def took(self) -> str:
        """How many seeds, and how long they took."""
        n = len(self.seeds)
        kind = "quick run" if self.quick else "full run"
        return f"{kind}, {n} {'seed' if n == 1 else 'seeds'}, {in_seconds(self.seconds)}"

    def svg(self) -> str:
        return self.drawn("svg")[0].decode()

    def png(self) -> bytes:
        return self.drawn("png")[0]

    def page(self) -> str:
        from clearhead.claims.report import page

        return page(self)

    def drawn(self, *kinds: Literal["svg", "png"]) -> list[bytes]:
        """The figure as files of these kinds, drawn once."""
        if problem := missing([DRAWING]):
            raise ClearheadError(f"the figure of {self.name} {problem}")
        from clearhead.claims import figures

        written = []
        with figures.style():
            figure = self.claim.draw([seed.measured for seed in self.seeds])
            for kind in kinds:
                file = io.BytesIO()
                # Without a date, the same figure is the same file.
                figure.savefig(file, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None)
                written.append(file.getvalue())
        return written

    def to_json(self) -> dict[str, Any]:
        claim = self.claim
        found: dict[str, Any] = _plain(
            {
                "claim": self.name,
                "chapter": chapter_of(self.name),
                "statements": claim.source.statements,
                "says": claim.says,
                "source": claim.source.paper,
                "how": claim.how,
                "quick": self.quick,
                "verdict": self.verdict,
                "marks": [{**asdict(m.mark), "number": asdict(m.number), "verdict": m.verdict} for m in self.marks],
                "numbers": {name: asdict(number) for name, number in self.numbers.items()},
                "seeds": [asdict(seed) for seed in self.seeds],
                "seconds": self.seconds,
                "cpu_seconds": sum(seed.cpu_seconds for seed in self.seeds),
                "command": self.command,
            }
        )
        return found


def _plain(value: Any) -> Any:
    """`value` as JSON has it, which knows no number that is infinite or none."""
    match value:
        case dict():
            return {key: _plain(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_plain(inner) for inner in value]
        case float() if not math.isfinite(value):
            return None
    return value
