"""Chapter 7: clear-translate says a number in another language, and where it looks as it does; a model is prompted."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, Any, Literal

import torch
from pydantic import Field

from clearhead.claims.ingredients.tasks import TASKS
from clearhead.claims.masks.prompted_tasks import ids_of
from clearhead.errors import UsageError
from clearhead.generation import generate
from clearhead.generation.prompts import window
from clearhead.studio.operations import Answer, operation
from clearhead.training.measures.alignment import align

if TYPE_CHECKING:
    from clearhead.model.transformer import Transformer
    from clearhead.studio.context import Studio

TRANSLATOR = "clear-translate"
LONGEST = 60
"""Tokens of an answer: every number below a million has fewer."""
PROMPTED = "gemma3-270m"


@operation("masks.translate")
def translate(
    studio: Studio,
    *,
    number: Annotated[str, Field(min_length=1, max_length=300)] = "twenty-one",
    language: Literal["de", "fr"] = "de",
    head: Annotated[int, Field(ge=-1, le=63)] = -1,
) -> Iterator[Answer]:
    """A number in words, translated; and where cross-attention looks as each word is written: a head's, or -1 for the
    mean of all heads.
    """
    model = studio.models.get(TRANSLATOR)
    source = f"{language}: {' '.join(number.lower().split())}"
    _check_known(model, source)
    with studio.models.lock(TRANSLATOR):
        text = generate(model, source, max_new_tokens=LONGEST).text
        seen = align(model, source, text)
    n_layers, n_heads = seen.patterns_LHTS.shape[:2]
    if head >= n_layers * n_heads:
        raise UsageError(f"clear-translate has {n_layers * n_heads} heads that look at the source, counted from 0")
    pattern_TS = seen.mean_TS if head < 0 else seen.patterns_LHTS[head // n_heads, head % n_heads]
    looks = pattern_TS.argmax(-1).tolist()
    shares = pattern_TS.amax(-1).tolist()
    crossing = [(i, j) for i, j in combinations(range(len(looks)), 2) if looks[i] > looks[j]]
    yield Answer(
        data={
            "number": number.strip(),
            "language": language,
            "head": head,
            "source": list(seen.source),
            "target": list(seen.target),
            "text": text,
            "looks": [{"at": at, "share": share} for at, share in zip(looks, shares, strict=True)],
            "crossing": crossing,
            "n_crossing": len(crossing),
            "n_layers": n_layers,
            "n_heads": n_heads,
            "heads": [f"layer {layer}, head {one}" for layer in range(n_layers) for one in range(n_heads)],
        },
        arrays={"pattern": pattern_TS, "by_head": seen.patterns_LHTS.flatten(0, 1)},
        python=_TRANSLATE.format(source=source, which=_which(head, n_heads), longest=LONGEST),
        printed=(*shares, float(len(crossing))),
    )


def _which(head: int, n_heads: int) -> str:
    return "mean_TS" if head < 0 else f"patterns_LHTS[{head // n_heads}, {head % n_heads}]"


_TRANSLATE = """\
import clearhead
from clearhead.training.measures.alignment import align

model = clearhead.load("clear-translate")
answer = clearhead.generate(model, {source!r}, max_new_tokens={longest})
seen = align(model, {source!r}, answer.text)
pattern = seen.{which}  # a row for each word that is written, a column for each of the source
looks = pattern.argmax(-1).tolist()
for target, at, share in zip(seen.target, looks, pattern.amax(-1).tolist()):
    print(f"{{target}} looks most at {{seen.source[at]}}: {{share:.9f}}")
crossing = sum(looks[i] > looks[j] for j in range(len(looks)) for i in range(j))
print("pairs that cross:", crossing)
"""


def _check_known(model: Transformer, source: str) -> None:
    """Refuse a word that the model has never met.

    Raises:
        UsageError: there is one, or the text is too long.
    """
    for word in source.split():
        if model.tokenizer.unk_id in model.tokenizer.encode(word, bos=False):
            raise UsageError(f"clear-translate knows nothing but English number words, and {word[:40]!r} is none")
    room, n = window(model.config), len(model.tokenizer.encode(source))
    if room is not None and n > room:
        raise UsageError(f"clear-translate reads {room} tokens, and this number has {n}")


# ---- no labels are needed


@operation("masks.prompted")
def prompted(
    studio: Studio,
    *,
    task: Literal[tuple(TASKS)] = "opposite",  # type: ignore[valid-type]
    item: Annotated[int, Field(ge=0, le=23)] = 0,
    asked: bool = False,
) -> Iterator[Answer]:
    """How one model is asked for a task: in words, by examples, and by another task's examples; and where it is asked,
    how likely it holds the answer to be.
    """
    names = list(TASKS)
    other = TASKS[names[(names.index(task) + 1) % len(names)]]
    items = TASKS[task].asked
    given, answer = items[item % len(items)]
    ways = {
        "in words": TASKS[task].zero_shot(given),
        "by four examples": TASKS[task].few_shot(given),
        "by another task's examples": other.few_shot(given),
    }
    told = _ask(studio, list(ways.values()), answer) if asked else [None] * len(ways)
    rows = [{"how": how, "prompt": prompt, "told": one} for (how, prompt), one in zip(ways.items(), told, strict=True)]
    yield Answer(
        data={
            "tasks": names,
            "task": task,
            "n_items": len(items),
            "item": given,
            "answer": answer,
            "ways": rows,
            "asked": asked,
        },
        python=_PROMPTED.format(task=task, item=item % len(items)) if asked else "",
        printed=tuple(one["share"] for one in told if one is not None),
    )


def _ask(studio: Studio, ways: list[str], answer: str) -> list[dict[str, Any]]:
    """How likely the answer's first token is behind each prompt, and which token is the likeliest.

    Raises:
        ClearheadError: Gemma is not on this machine.
    """
    model = studio.models.get(PROMPTED)
    found = []
    with studio.models.lock(PROMPTED), torch.inference_mode():
        for prompt in ways:
            ids, n_answer = ids_of(model, prompt, answer)
            scores_V = model(torch.tensor([ids[:-n_answer]]), last=1)[0, -1].float()
            shares_V = scores_V.softmax(-1)
            best = int(shares_V.argmax())
            found.append(
                {
                    "share": float(shares_V[ids[-n_answer]]),
                    "score": float(scores_V[ids[-n_answer]]),
                    "best_score": float(scores_V[best]),
                    "log_sum": float(scores_V.logsumexp(-1)),
                    "best": model.tokenizer.pieces([best])[0],
                    "best_share": float(shares_V[best]),
                    "right": best == ids[-n_answer],
                }
            )
    return found


_PROMPTED = """\
import torch
import clearhead
from clearhead.claims.ingredients.tasks import TASKS
from clearhead.claims.masks.prompted_tasks import ids_of

model = clearhead.load("gemma3-270m")
names = list(TASKS)
task, other = TASKS[{task!r}], TASKS[names[(names.index({task!r}) + 1) % len(names)]]
item, answer = task.asked[{item}]
for prompt in (task.zero_shot(item), task.few_shot(item), other.few_shot(item)):
    ids, n = ids_of(model, prompt, answer)
    with torch.inference_mode():
        shares = model(torch.tensor([ids[:-n]]), last=1)[0, -1].softmax(-1)
    print(f"share of the answer: {{float(shares[ids[-n]]):.9f}}")
"""
