"""What the configs of several families spell alike."""

from __future__ import annotations

from typing import Any, TypeVar

from clearhead.config import HeadsConfig, LabelHeadConfig, TokenHeadConfig, TokenIds
from clearhead.errors import ClearheadError
from clearhead.families.family import Reader

T = TypeVar("T")

ACTIVATION_NAMES = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "quick_gelu": "quick_gelu",
    "relu": "relu",
    "relu2": "relu_squared",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
}


def published_activation(name: str, tanh: str = "gelu_pytorch_tanh") -> str:
    """The published name of one of our activations; families differ in what they call the tanh GELU."""
    return {"gelu_tanh": tanh, "relu_squared": "relu2"}.get(name, name)


def read_ids(reader: Reader, bos: int | None, eos: int | None, pad: int | None = None) -> TokenIds:
    """The special tokens; the arguments are the family's defaults for keys that are absent. Null means none."""

    def ids(name: str, default: int | None) -> tuple[int, ...]:
        found = reader.get(name) if name in reader.raw else default
        many = () if found is None else tuple(found) if isinstance(found, list) else (found,)
        if not all(isinstance(i, int) and not isinstance(i, bool) for i in many):
            raise ClearheadError(f"{reader.where}: {name} is {found!r}; a token id is a whole number")
        return many

    def one(name: str, default: int | None) -> int | None:
        return next(iter(ids(name, default)), None)

    return TokenIds(bos=one("bos_token_id", bos), eos=ids("eos_token_id", eos), pad=one("pad_token_id", pad))


def write_ids(ids: TokenIds) -> dict[str, Any]:
    """The special tokens as published configs spell them."""
    eos: int | list[int] | None = list(ids.eos) if len(ids.eos) > 1 else ids.eos[0] if ids.eos else None
    return {"bos_token_id": ids.bos, "eos_token_id": eos, "pad_token_id": ids.pad}


def a(kind: type[T], part: object) -> T:
    """`part`, which must be a `kind` for a family to have words for it."""
    if not isinstance(part, kind):
        raise ClearheadError(f"this family's config has no words for {part}: it needs a {kind.__name__} there")
    return part


def whole(x: float) -> int | float:
    """The whole number that rounding has moved x away from, if any."""
    return round(x) if abs(x - round(x)) < 1e-6 * abs(x) else x


# ---- heads of decoders: each task has a class, named after the family and the task

CLASSIFY, TAG, ANSWER = "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"
CLASSES, SPAN = "classes", "spans"
"""Our names for the label heads: scores of classes, and of where an answer starts and ends."""


def n_labels(r: Reader) -> int:
    """How many labels a classifier tells apart. The labels' names are carried along, so nothing counts as read."""
    named = r.raw.get("id2label")
    n = r.raw.get("num_labels", 2) if named is None else len(named)
    if not isinstance(n, int) or isinstance(n, bool):
        raise ClearheadError(f"{r.where}: num_labels is {n!r}; a whole number is expected")
    return n


def write_labels(n: int) -> dict[str, Any]:
    """Names for `n` labels, where that is not what a config without them means."""
    return {} if n == 2 else {"id2label": {str(i): f"LABEL_{i}" for i in range(n)}}


def read_heads(r: Reader, tokens: TokenHeadConfig) -> HeadsConfig:
    """The heads of a decoder; `tokens` is its head for text."""
    named = r.architecture
    if named.endswith(CLASSIFY):
        return HeadsConfig(labels=((CLASSES, LabelHeadConfig(n_labels=n_labels(r), at="last", bias=False)),))
    if named.endswith(TAG):
        said = r.raw.get("classifier_dropout")
        dropout = 0.1 if said is None else said
        return HeadsConfig(labels=((CLASSES, LabelHeadConfig(n_labels=n_labels(r), at="every", dropout=dropout)),))
    if named.endswith(ANSWER):
        return HeadsConfig(labels=((SPAN, LabelHeadConfig(n_labels=2, at="every")),))
    bare = named.endswith("Model") and not named.endswith("LMHeadModel")
    return HeadsConfig() if bare else HeadsConfig(tokens=tokens)


def write_heads(heads: HeadsConfig, architectures: tuple[str, ...]) -> dict[str, Any]:
    """The class that has these heads, if it is not the first of the family's, and what its config says of them."""
    tie = {"tie_word_embeddings": heads.tokens is not None and heads.tokens.tie}
    if heads.tokens is not None:
        return tie
    ends, labels = "Model", {}
    for name, head in heads.labels:
        ends = ANSWER if name == SPAN else TAG if head.at == "every" else CLASSIFY
        labels = write_labels(head.n_labels) if name == CLASSES else {}
        labels |= {"classifier_dropout": head.dropout} if ends == TAG and head.dropout != 0.1 else {}
    named = next((n for n in architectures if n.endswith(ends) and not n.endswith("LMHeadModel")), None)
    if named is None:
        raise ClearheadError(f"no class of this family has these heads; there are {', '.join(architectures)}")
    return {"architectures": [named], **tie, **labels}
