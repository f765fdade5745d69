"""clear-2l along its training: what every head does, how the loss falls, and the patterns themselves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field
from torch import Tensor

from clearhead.checkpoints.own import AT, MODELS, snapshots_of
from clearhead.claims.heads.induction import LONGEST, head_scores, repeating, second_half_loss
from clearhead.claims.ingredients.fitting import next_token_loss
from clearhead.errors import UsageError
from clearhead.lens import look
from clearhead.studio.explore.promptly import promptly
from clearhead.studio.kept import KeptResults
from clearhead.studio.operations import Answer, operation
from clearhead.training.recipes.attention_only_2l import attention_only_2l

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.context import Studio

NAME = "clear-2l"
ROWS = 16
TOLD = ROWS * (LONGEST - 1)
"""How many tokens of either telling are told from those before them: the first of each row is not."""


@dataclass(frozen=True)
class Moment:
    """One snapshot on rows of random tokens that come twice."""

    step: int
    first: float
    second: float
    """Nats a token, on the first telling and on the second."""
    previous_LH: Tensor
    induction_LH: Tensor
    pattern_LHTS: Tensor
    scores_LHTS: Tensor
    """Of the first row alone."""


_kept: KeptResults[Moment] = KeptResults(64)


@cache
def names() -> tuple[str, ...]:
    """The snapshots, in order, as the Studio calls them."""
    return tuple(f"{NAME}{AT}{one}" for one in snapshots_of(MODELS / NAME))


@cache
def repeated(vocabulary: int) -> Tensor:
    """(16, 64) tokens: 32 that are drawn, and the same again."""
    return repeating(ROWS, vocabulary, torch.Generator().manual_seed(0), shortest=LONGEST)


@cache
def asked(vocabulary: int) -> int:
    """How many of these tokens stood there before, so that an induction head has something to look for."""
    rows = repeated(vocabulary).tolist()
    return sum(token in row[:i] for row in rows for i, token in enumerate(row))


def moment(studio: Studio, number: int) -> Moment:
    """What one snapshot makes of them."""
    return _kept.of(studio.models, names()[number], make=lambda model: _measure(model, number))


def _measure(model: Transformer, number: int) -> Moment:
    tokens_BT = repeated(model.config.vocab_size)
    seen = look(model, tokens_BT, "layers.*.mixer.pattern")
    scores = look(model, tokens_BT[:1], "layers.*.mixer.scores")
    previous_LH, induction_LH = head_scores(seen, tokens_BT)
    logits_BTV = seen.output
    return Moment(
        step=attention_only_2l().every.snapshots[number],
        first=float(next_token_loss(logits_BTV[:, :LONGEST], tokens_BT[:, :LONGEST])),
        second=second_half_loss(logits_BTV, tokens_BT),
        previous_LH=previous_LH,
        induction_LH=induction_LH,
        pattern_LHTS=torch.stack([pattern_BHTS[0].clone() for pattern_BHTS in seen.values()]),
        scores_LHTS=torch.stack([scores_BHTS[0].clone() for scores_BHTS in scores.values()]),
    )


@operation("heads.snapshots")
def snapshots(studio: Studio) -> Iterator[Answer]:
    """Every snapshot, one after another: the history so far with each answer."""
    moments: list[Moment] = []
    for number in range(len(names())):
        moments.append(moment(studio, number))
        yield Answer(
            data={
                "names": names(),
                "steps": [one.step for one in moments],
                "first": [one.first for one in moments],
                "second": [one.second for one in moments],
                "of": len(names()),
                "told": TOLD,
                "rows": ROWS,
                "half": LONGEST,
                "vocabulary": studio.models.about(NAME)["vocab"],
            },
            arrays={
                "induction": torch.stack([one.induction_LH for one in moments]),
                "previous": torch.stack([one.previous_LH for one in moments]),
            },
            python=curves_code(),
            printed=tuple(x for one in moments for x in (one.first, one.second)) if number + 1 == len(names()) else (),
        )


def curves_code() -> str:
    return f"""import torch
import clearhead
from clearhead.claims.heads.induction import repeating, second_half_loss
from clearhead.claims.ingredients.fitting import next_token_loss

vocab_size = clearhead.load("{NAME}").config.vocab_size
tokens = repeating({ROWS}, vocab_size, torch.Generator().manual_seed(0), shortest={LONGEST})
for snapshot in range({len(names())}):
    model = clearhead.load(f"{NAME}{AT}{{snapshot:04}}")
    with torch.no_grad():
        logits = model(tokens)
    print(next_token_loss(logits[:, :{LONGEST}], tokens[:, :{LONGEST}]).item())  # first telling
    print(second_half_loss(logits, tokens))  # second telling
"""


@operation("heads.snapshot")
def snapshot(
    studio: Studio,
    *,
    at: Annotated[int, Field(ge=0, le=99)] = 99,
    layer: Annotated[int, Field(ge=-1, le=15)] = -1,
    head: Annotated[int, Field(ge=-1, le=63)] = -1,
    q: Annotated[int, Field(ge=0, lt=64)] = 45,
) -> Answer | Iterator[Answer]:
    """One snapshot: the scores of all heads, and the pattern of one of them on a row that repeats.

    layer, head: -1 is the head that is the best induction head at the end.
    """
    number, last = min(at, len(names()) - 1), len(names()) - 1

    def told() -> Answer:
        n_heads = moment(studio, last).induction_LH.shape[1]
        chosen = layer, head
        if layer < 0 or head < 0:
            chosen = divmod(int(moment(studio, last).induction_LH.argmax()), n_heads)
        return _one(studio, number, chosen, q)

    known = (_kept.get(_kept.key(studio.models, names()[one])) is not None for one in (number, last))
    return promptly(all(known), told)


def _one(studio: Studio, number: int, chosen: tuple[int, int], q: int) -> Answer:
    one, name, (layer, head) = moment(studio, number), names()[number], chosen
    n_layers, n_heads = one.induction_LH.shape
    if layer >= n_layers or head >= n_heads:
        raise UsageError(f"{NAME} has the layers 0 to {n_layers - 1}, with the heads 0 to {n_heads - 1}")
    row_S = one.pattern_LHTS[layer, head, q]
    scores = float(one.induction_LH[layer, head]), float(one.previous_LH[layer, head])
    target = q - LONGEST + 1
    tokens_T = repeated(studio.models.about(NAME)["vocab"])[0]
    return Answer(
        data={
            "name": name,
            "at": number,
            "of": len(names()),
            "step": one.step,
            "layer": layer,
            "head": head,
            "layers": n_layers,
            "heads": n_heads,
            "q": q,
            "tokens": studio.models.tokenizer(NAME).pieces(tokens_T.tolist()),
            "half": LONGEST,
            "back": LONGEST - 1,
            "target": target if target > 0 else -1,
            "on_target": float(row_S[target]) if target > 0 else 0.0,
            "largest": int(row_S.argmax()),
            "largest_weight": float(row_S.max()),
            "induction": scores[0],
            "previous": scores[1],
            "first": one.first,
            "second": one.second,
            "told": TOLD,
            "asked": asked(studio.models.about(NAME)["vocab"]),
            "pairs": ROWS * (len(tokens_T) - 1),
            "rows": ROWS,
        },
        arrays={
            "pattern": one.pattern_LHTS[layer, head],
            "row_scores": one.scores_LHTS[layer, head, q],
            "induction": one.induction_LH,
            "previous": one.previous_LH,
        },
        python=(
            "import torch\n"
            "import clearhead\n"
            "from clearhead.claims.heads.induction import head_scores, repeating, second_half_loss\n\n"
            f"model = clearhead.load({name!r})\n"
            "generator = torch.Generator().manual_seed(0)\n"
            f"tokens = repeating({ROWS}, model.config.vocab_size, generator, shortest={LONGEST})\n"
            'seen = clearhead.look(model, tokens, "layers.*.mixer.pattern")\n'
            "previous, induction = head_scores(seen, tokens)\n"
            f"print(induction[{layer}, {head}].item(), previous[{layer}, {head}].item())\n"
            "print(second_half_loss(seen.output, tokens))\n"
        ),
        printed=(*scores, one.second),
    )
