"""What one head of a model looks at in one text, and what the model expects next: numbers first, drawing after."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

from clearhead.lens.views.drawn import SheetFigure
from clearhead.lens.views.head_map import HOW, HeadMap, lay_out
from clearhead.lens.views.heads import maps_page
from clearhead.lens.views.pattern import strongest
from clearhead.lens.views.scale import Scale

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from clearhead.lens.views.sheet import Sheet


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
class AttentionReport(SheetFigure):
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
        return tuple(line for line in (self.why, HOW) if line)

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

    def parts(self, console: Console) -> list[RenderableType]:
        """The map, the strongest links and the next tokens."""
        from clearhead.lens.views.screen import report_parts

        return report_parts(self, console)

    def sheet(self) -> Sheet:
        tokens = [token.text for token in self.tokens]
        return lay_out(HeadMap(self.title, self.pattern_TS, tokens, tokens), self.subtitle, self.next_tokens)

    def page(self) -> str:
        from clearhead.lens.views.glances import heading

        tokens = [token.text for token in self.tokens]
        more = {
            "next": [[token.text, round(token.probability, 5)] for token in self.next_tokens],
            "glances": [[glance.layer, glance.head, glance.key, glance.weight] for glance in self.glances],
            "heading": heading(tokens),
        }
        return maps_page(self.title, " ".join(self.subtitle), self.pattern_TS, tokens, tokens, Scale(), **more)
