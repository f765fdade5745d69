"""What one head of a model looks at in one text, and what the model expects next: numbers first, drawing after."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from clearhead.lens.views import save
from clearhead.lens.views.pattern import strongest

if TYPE_CHECKING:
    from rich.console import Console


class Token(NamedTuple):
    """A token of the text, its label with nothing invisible in it."""

    id: int
    text: str


class NextToken(NamedTuple):
    """A token that could come next."""

    id: int
    text: str
    probability: float


class Glance(NamedTuple):
    """Where a head's last token looks most, further back than its neighbour, the first token left out."""

    layer: int
    head: int
    key: int
    weight: float


@dataclass(frozen=True)
class AttentionReport:
    """One pattern with its tokens. `pattern_TS` (T, T): row t is what token t looks at, and sums to one."""

    tokens: tuple[Token, ...]
    pattern_TS: Tensor
    layer: int
    head: int | None
    """None: the mean over the layer's heads."""
    n_heads: int
    next_tokens: tuple[NextToken, ...] = ()
    glances: tuple[Glance, ...] = ()
    """Of every head that was asked about, in order."""
    why: str = ""
    """How this pattern was chosen, where the caller did not."""

    @property
    def title(self) -> str:
        head = f"mean of {self.n_heads} heads" if self.head is None else f"head {self.head}"
        return f"Layer {self.layer}, {head}"

    @property
    def subtitle(self) -> tuple[str, ...]:
        how = "A row is what one token looks at, in percent; it sums to 100."
        return tuple(line for line in (self.why, how) if line)

    def to_json(self) -> dict[str, Any]:
        """Everything as plain lists and numbers, ready for `json.dumps`."""
        return {
            "layer": self.layer,
            "head": self.head,
            "why": self.why,
            "tokens": [token._asdict() for token in self.tokens],
            "pattern": self.pattern_TS.tolist(),
            "links": [
                link._asdict() for query in range(len(self.tokens)) for link in strongest(self.pattern_TS, query)
            ],
            "next": [token._asdict() for token in self.next_tokens],
            "glances": [glance._asdict() for glance in self.glances],
        }

    def print(self, console: Console | None = None) -> None:
        """The map, the strongest links and the next tokens, in the terminal."""
        from clearhead.lens.views.screen import print_report

        print_report(self, console)

    def save(self, path: str | Path) -> Path:
        """Write .svg, .png, .html or .json, by the file's ending; other endings are a UsageError."""
        return save.save(self, path)
