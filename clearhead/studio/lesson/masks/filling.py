"""Chapter 7: clear-bert fills blanks, and is shown what it learned from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import torch
from pydantic import Field

from clearhead.errors import ClearheadError, UsageError
from clearhead.generation.prompts import window
from clearhead.ops.losses import IGNORE
from clearhead.studio.operations import Answer, operation
from clearhead.training.config import MaskingConfig
from clearhead.training.data.batches import generator
from clearhead.training.data.masking import Masker

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.context import Studio

FILLER = "clear-bert"
BLANK = "[MASK]"
SHOWN = 8
DEFAULT = "The people of the [MASK] States have every reason to be [MASK] for the blessings of peace."
SENTENCE = "The people of the United States have every reason to be grateful for the blessings of peace."
Text = Annotated[str, Field(max_length=2000)]


@operation("masks.fill")
def fill(studio: Studio, *, text: Text = DEFAULT, blank: Annotated[int, Field(ge=0, le=127)] = 0) -> Answer:
    """The likeliest words at every blank of a text, and in full at one of them."""
    model = studio.models.get(FILLER)
    ids = _ids(model, text)
    mask_id = model.tokenizer.token_to_id(BLANK)
    places = [i for i, token in enumerate(ids) if token == mask_id]
    with studio.models.lock(FILLER), torch.inference_mode():
        scores_TV = model(torch.tensor([ids]))[0].float()
    best = [_best(model, scores_TV[place]) for place in places]
    blanks = [
        {"place": place, "best": words, "log_sum": float(scores_TV[place].logsumexp(-1))}
        for place, words in zip(places, best, strict=True)
    ]
    chosen = min(blank, len(places) - 1) if places else None
    shown: Sequence[float] = () if chosen is None else [one["share"] for one in best[chosen]]
    return Answer(
        data={"tokens": _pieces(model, ids), "blanks": blanks, "chosen": chosen, "n_all": scores_TV.shape[-1]},
        python=_FILL.format(text=text, chosen=chosen, shown=SHOWN) if chosen is not None else "",
        printed=tuple(shown),
    )


_FILL = """\
import torch
import clearhead

model = clearhead.load("clear-bert")
ids = model.tokenizer.encode({text!r}, parse_special=True)
blanks = [place for place, token in enumerate(ids) if token == model.tokenizer.token_to_id("[MASK]")]
with torch.inference_mode():
    shares = model(torch.tensor([ids]))[0, blanks[{chosen}]].softmax(-1)
best = shares.topk({shown})
for share in best.values.tolist():
    print(f"{{share:.9f}}")
words = [model.tokenizer.decode([token]) for token in best.indices.tolist()]  # the words they are of
"""


@operation("masks.hide")
def hide(studio: Studio, *, text: Text = SENTENCE, seed: Annotated[int, Field(ge=0, le=9999)] = 0) -> Answer:
    """Hide 15 % of a text as in training, and have the model tell what was there."""
    model = studio.models.get(FILLER)
    ids = _ids(model, text)
    inner = np.array(ids[1:-1], np.int64)
    seen, targets = Masker(model.tokenizer, MaskingConfig())(inner, generator(seed, 0))
    with studio.models.lock(FILLER), torch.inference_mode():
        scores_TV = model(torch.tensor([[ids[0], *seen.tolist(), ids[-1]]]))[0, 1:-1].float()
    asked = [i for i, target in enumerate(targets.tolist()) if target != IGNORE]
    rows = [_told(model, i, int(seen[i]), int(targets[i]), scores_TV[i]) for i in asked]
    n_right = sum(row["right"] for row in rows)
    return Answer(
        data={
            "tokens": _pieces(model, inner.tolist()),
            "seen": _pieces(model, seen.tolist()),
            "hidden": rows,
            "n_tokens": len(inner),
            "n_hidden": len(rows),
            "share_hidden": MaskingConfig().share,
            "n_right": n_right,
        },
        python=_HIDE.format(text=text, seed=seed),
        printed=(float(len(rows)), float(n_right), *(row["share"] for row in rows)),
    )


_HIDE = """\
import numpy as np
import torch
import clearhead
from clearhead.training.config import MaskingConfig
from clearhead.training.data.batches import generator
from clearhead.training.data.masking import Masker

model = clearhead.load("clear-bert")
first, *inner, last = model.tokenizer.encode({text!r}, parse_special=True)
seen, targets = Masker(model.tokenizer, MaskingConfig())(np.array(inner, np.int64), generator({seed}, 0))
with torch.inference_mode():
    shares = model(torch.tensor([[first, *seen.tolist(), last]]))[0, 1:-1].softmax(-1)
hidden = [(place, target) for place, target in enumerate(targets.tolist()) if target >= 0]
right = sum(int(shares[place].argmax()) == target for place, target in hidden)
print(f"hidden: {{len(hidden)}}, told rightly: {{right}}")
for place, target in hidden:
    print(f"share given to what was there: {{float(shares[place, target]):.9f}}")
"""


def _told(model: Transformer, place: int, seen: int, target: int, scores_V: torch.Tensor) -> dict[str, Any]:
    best = _best(model, scores_V, 3)
    blank = model.tokenizer.token_to_id(BLANK)
    return {
        "place": place,
        "how": "blank" if seen == blank else "kept" if seen == target else "replaced",
        "was": model.tokenizer.decode([target]),
        "share": float(scores_V.softmax(-1)[target]),
        "score": float(scores_V[target]),
        "log_sum": float(scores_V.logsumexp(-1)),
        "best": best,
        "right": best[0]["id"] == target,
    }


def _best(model: Transformer, scores_V: torch.Tensor, n: int = SHOWN) -> list[dict[str, Any]]:
    """The words with the largest shares of the softmax over all scores, and the scores that these come from."""
    best = scores_V.softmax(-1).topk(n)
    return [
        {"id": token, "word": model.tokenizer.decode([token]), "share": share, "score": float(scores_V[token])}
        for share, token in zip(best.values.tolist(), best.indices.tolist(), strict=True)
    ]


def _ids(model: Transformer, text: str) -> list[int]:
    """The tokens of a text, in which [MASK] is a blank.

    Raises:
        UsageError: there is no text, or more than the model reads.
    """
    ids: list[int] = model.tokenizer.encode(text, parse_special=True)
    room = window(model.config)
    if room is None:
        raise ClearheadError(f"{FILLER} says of no length that it reads")
    if len(ids) < 3:
        raise UsageError("write a few words, with [MASK] where one is to be filled in")
    if len(ids) > room:
        raise UsageError(f"clear-bert reads {room} tokens at once, and this text has {len(ids)}; shorten it")
    return ids


def _pieces(model: Transformer, ids: list[int]) -> list[str]:
    """Tokens as text; a dot in the middle of the line stands for a space."""
    pieces: list[str] = model.tokenizer.pieces(ids)
    return pieces
