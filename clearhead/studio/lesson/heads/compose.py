"""Layers compose: hide one place from the heads of layer 0, and see what is left of the induction heads of layer 1."""

from __future__ import annotations

from functools import cache
from typing import Annotated

from pydantic import Field
from torch import Tensor

from clearhead.claims.heads.heads_compose import OFFSETS, blind
from clearhead.claims.heads.induction import LONGEST, head_scores, second_half_loss
from clearhead.lens import look
from clearhead.studio.lesson.heads.snapshots import NAME, ROWS, repeated, whole
from clearhead.studio.operations import Answer, operation

SCORES = "layers.0.mixer.scores"


@cache
def without(offset: int) -> tuple[float, Tensor]:
    """The loss on what repeats and every head's induction score, where no query of layer 0 sees the token so far back;
    0: where it sees all.
    """
    tokens_BT = repeated()
    edits = {SCORES: blind(offset)} if offset else None
    seen = look(whole(), tokens_BT, "layers.*.mixer.pattern", edits=edits)
    return second_half_loss(seen.output, tokens_BT), head_scores(seen, tokens_BT)[1]


@operation("heads.compose")
def compose(*, offset: Annotated[int, Field(ge=0, le=3)] = 1) -> Answer:
    """offset: how far back the heads of layer 0 can't see; 0: nothing is hidden."""
    everything = [without(one) for one in (0, *OFFSETS)]
    best_LH = everything[0][1]
    layer, head = divmod(int(best_LH.argmax()), best_LH.shape[1])
    losses = [loss for loss, _ in everything]
    scores = [float(induction_LH[layer, head]) for _, induction_LH in everything]
    return Answer(
        data={
            "offset": offset,
            "offsets": [0, *OFFSETS],
            "layer": layer,
            "head": head,
            "losses": losses,
            "scores": scores,
        },
        arrays={"induction": everything[offset][1]},
        python=(
            "import torch\n"
            "import clearhead\n"
            "from clearhead.claims.heads.heads_compose import blind\n"
            "from clearhead.claims.heads.induction import head_scores, repeating, second_half_loss\n\n"
            f'model = clearhead.load("{NAME}")\n'
            "generator = torch.Generator().manual_seed(0)\n"
            f"tokens = repeating({ROWS}, model.config.vocab_size, generator, shortest={LONGEST})\n"
            f"for offset in {(0, *OFFSETS)}:\n"
            f'    edits = {{"{SCORES}": blind(offset)}} if offset else None\n'
            '    seen = clearhead.look(model, tokens, "layers.*.mixer.pattern", edits=edits)\n'
            "    print(second_half_loss(seen.output, tokens))\n"
            f"    print(head_scores(seen, tokens)[1][{layer}, {head}].item())\n"
        ),
        printed=tuple(number for pair in zip(losses, scores, strict=True) for number in pair),
    )
