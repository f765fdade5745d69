"""An induction head at work: a text ends in a word that was there before, and what followed it is expected again."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Annotated

import torch
from pydantic import Field
from torch import Tensor

from clearhead.errors import UsageError
from clearhead.lens import at, edit, look, zero
from clearhead.lens.edit import Edits
from clearhead.studio.operations import Answer, operation

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.context import Studio

TEXT = (
    "Mr Dursley was the director of a firm that made drills. Every morning at eight he kissed his wife, picked up his "
    "bag and drove to work. On that Tuesday nobody in the street saw the car leave, and nobody saw Mr"
)
MOST = 256
LARGE, SMALL = "gemma3-270m", "clear-2l"
SHOWN = 6


def earlier(words: list[str]) -> int:
    """The place after the earlier occurrence of the text's end: of the longest part that stands there twice, and of
    several the latest. -1 where the last token has not been there before. Spaces don't count: "Mr" may begin a text.
    """
    best, where = 0, -1
    for i in range(len(words) - 2):
        n = 0
        while n <= i and words[i - n] == words[-1 - n]:
            n += 1
        if n >= best and n:
            best, where = n, i + 1
    return where


@dataclass(frozen=True)
class Reading:
    """A model before the end of a text: the tokens, the place to look at, how much each head's last query gives to it,
    (L, H), and the scores of the next token, (V,).
    """

    model: Transformer
    text: str
    ids: list[int]
    where: int
    there_LH: Tensor
    logits_V: Tensor


_kept: OrderedDict[tuple[str, str], Reading] = OrderedDict()
_keeping = Lock()


def read(studio: Studio, name: str, text: str) -> Reading:
    """Read a text, or our own where there is none; the last few are kept.

    Raises:
        UsageError: the model does not go on with a text, or the text is too long or does not repeat.
    """
    model = studio.models.get(name)
    config = model.config
    if model.tokenizer is None or getattr(config, "encoder", None) is not None or model.head is None:
        raise UsageError(f"{name} does not go on with a text; choose clear-2l, clear-gpt or another decoder")
    if not text.strip():
        # A tokenizer that spells "Mr" out gets one letter of the name as well, for there is more than one "r".
        text = TEXT if len(model.tokenizer.encode(" Mr", bos=False)) == 1 else f"{TEXT} D"
    with _keeping:
        known = _kept.get((name, text))
    if known is not None:
        return known
    ids = model.tokenizer.encode(text.rstrip())
    if len(ids) > MOST:
        raise UsageError(f"this text is {len(ids)} tokens long; the figure reads {MOST}")
    where = earlier([piece.removeprefix("·") for piece in model.tokenizer.pieces(ids)])
    if where < 0:
        raise UsageError(
            "the last word did not occur before; end the text with a word that did, and stop there, as in "
            '"Mr Dursley ... Mr"'
        )
    with studio.models.lock(name):
        seen = look(model, ids, "layers.*.mixer.pattern", positions=[-1])
    there = [pattern_BHTS[0, :, 0, where] for pattern_BHTS in seen.values()]
    found = Reading(model, text, ids, where, torch.stack(there).float(), seen.output[0, -1].float())
    with _keeping:
        _kept[name, text] = found
        while len(_kept) > SHOWN:
            _kept.popitem(last=False)
    return found


@operation("heads.repeats")
def repeats(
    studio: Studio,
    *,
    model: Annotated[str, Field(max_length=200)] = "auto",
    text: Annotated[str, Field(max_length=1500)] = "",
    off: Annotated[int, Field(ge=0, le=32)] = 0,
) -> Answer:
    """How much each head looks, from the last word, at what followed it the first time; what is expected next; and what
    without the `off` heads that look there most.

    model: "auto" is the largest of the models that packages ship.
    """
    if model == "auto":
        model = LARGE if LARGE in studio.models.sources else SMALL
    reading = read(studio, model, text)
    net, ids, where, there_LH, logits_V = reading.model, reading.ids, reading.where, reading.there_LH, reading.logits_V
    assert net.tokenizer is not None
    n_heads = there_LH.shape[1]
    order = there_LH.flatten().argsort(descending=True, stable=True).tolist()
    gone = [divmod(i, n_heads) for i in order[:off]]
    after_V = logits_V if not gone else without(studio, net, model, ids, gone)
    target = ids[where]
    begins = net.tokenizer.pieces([target])[0].startswith("·")
    before_P, after_P = logits_V.softmax(-1), after_V.softmax(-1)
    top = after_P.topk(5)
    edits = {layer: [head for one, head in gone if one == layer] for layer in sorted({layer for layer, _ in gone})}
    return Answer(
        data={
            "model": model,
            "text": reading.text,
            "tokens": net.tokenizer.pieces(ids),
            "where": where,
            "word": net.tokenizer.pieces([target])[0],
            "whole": net.tokenizer.decode(ids[where : where + 4]).strip().split(" ")[0] if begins else "",
            "heads": [
                {"layer": i // n_heads, "head": i % n_heads, "weight": float(there_LH.flatten()[i])}
                for i in order[:SHOWN]
            ],
            "gone": gone,
            "off": off,
            "before": float(before_P[target]),
            "after": float(after_P[target]),
            "next": [
                {"text": net.tokenizer.pieces([token])[0], "share": share}
                for share, token in zip(top.values.tolist(), top.indices.tolist(), strict=True)
            ],
        },
        arrays={"there": there_LH},
        python=(
            "import clearhead\nfrom clearhead.lens import at, zero\n\n"
            f"model = clearhead.load({model!r})\nids = model.tokenizer.encode({reading.text.rstrip()!r})\n"
            "edits = {\n"
            + "".join(f'    "layers.{layer}.mixer.z": at(zero, heads={heads}),\n' for layer, heads in edits.items())
            + "}\n"
            f"for change in ({{}}, edits):\n"
            "    next_token = clearhead.edit(model, ids, change)[0, -1].float().softmax(-1)\n"
            f"    print(next_token[ids[{where}]].item())\n"
        ),
        printed=(float(before_P[target]), float(after_P[target])),
    )


def without(studio: Studio, model: Transformer, name: str, ids: list[int], gone: list[tuple[int, int]]) -> Tensor:
    """The scores of the next token with what these heads mix set to zero."""
    by_layer: dict[int, list[int]] = {}
    for layer, head in gone:
        by_layer.setdefault(layer, []).append(head)
    edits: Edits = {f"layers.{layer}.mixer.z": at(zero, heads=heads) for layer, heads in by_layer.items()}
    with studio.models.lock(name):
        scores_V: Tensor = edit(model, ids, edits)[0, -1].float()
    return scores_V
