"""Layers compose: hide one place from the heads of layer 0, and see what is left of the induction heads of layer 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from torch import Tensor

from clearhead.claims.heads.heads_compose import OFFSETS, blind
from clearhead.claims.heads.induction import LONGEST, head_scores, second_half_loss
from clearhead.lens import look
from clearhead.studio.explore.promptly import promptly
from clearhead.studio.kept import KeptResults
from clearhead.studio.lesson.heads.snapshots import NAME, ROWS, TOLD, asked, repeated
from clearhead.studio.operations import Answer, operation

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.context import Studio

SCORES = "layers.0.mixer.scores"
HIDDEN = (0, *OFFSETS)
"""How far back no query of layer 0 sees; 0: it sees all."""


@dataclass(frozen=True)
class Without:
    """By what is hidden: the loss on what repeats, and every head's induction score, (L, H)."""

    losses: list[float]
    scores: list[Tensor]


_kept: KeptResults[Without] = KeptResults(2)


@operation("heads.compose")
def compose(studio: Studio, *, offset: Annotated[int, Field(ge=0, le=3)] = 1) -> Answer | Iterator[Answer]:
    """offset: how far back the heads of layer 0 can't see; 0: nothing is hidden."""

    def told() -> Answer:
        found = _kept.of(studio.models, NAME, make=_measure)
        best_LH = found.scores[0]
        layer, head = divmod(int(best_LH.argmax()), best_LH.shape[1])
        scores = [float(induction_LH[layer, head]) for induction_LH in found.scores]
        return Answer(
            data={
                "offset": offset,
                "offsets": HIDDEN,
                "rows": ROWS,
                "half": LONGEST,
                "told": TOLD,
                "asked": asked(studio.models.about(NAME)["vocab"]),
                "layer": layer,
                "head": head,
                "losses": found.losses,
                "scores": scores,
            },
            arrays={"induction": found.scores[offset]},
            python=_code(layer, head),
            printed=tuple(number for pair in zip(found.losses, scores, strict=True) for number in pair),
        )

    return promptly(_kept.get(_kept.key(studio.models, NAME)) is not None, told)


def _measure(model: Transformer) -> Without:
    tokens_BT = repeated(model.config.vocab_size)
    losses, scores = [], []
    for offset in HIDDEN:
        seen = look(model, tokens_BT, "layers.*.mixer.pattern", edits={SCORES: blind(offset)} if offset else None)
        losses.append(second_half_loss(seen.output, tokens_BT))
        scores.append(head_scores(seen, tokens_BT)[1])
    return Without(losses, scores)


def _code(layer: int, head: int) -> str:
    return (
        "import torch\n"
        "import clearhead\n"
        "from clearhead.claims.heads.heads_compose import blind\n"
        "from clearhead.claims.heads.induction import head_scores, repeating, second_half_loss\n\n"
        f'model = clearhead.load("{NAME}")\n'
        "generator = torch.Generator().manual_seed(0)\n"
        f"tokens = repeating({ROWS}, model.config.vocab_size, generator, shortest={LONGEST})\n"
        f"for offset in {HIDDEN}:\n"
        f'    edits = {{"{SCORES}": blind(offset)}} if offset else None\n'
        '    seen = clearhead.look(model, tokens, "layers.*.mixer.pattern", edits=edits)\n'
        "    print(second_half_loss(seen.output, tokens))\n"
        f"    print(head_scores(seen, tokens)[1][{layer}, {head}].item())\n"
    )
