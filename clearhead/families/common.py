"""What the configs of several families spell alike."""

from __future__ import annotations

from typing import Any, TypeVar

from clearhead.config import TokenIds
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
