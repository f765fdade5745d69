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
    """The special tokens; the arguments are the family's defaults."""
    ends = reader.get("eos_token_id", eos)
    ends = () if ends is None else (ends,) if isinstance(ends, int) else tuple(ends)
    return TokenIds(bos=reader.get("bos_token_id", bos), eos=ends, pad=reader.get("pad_token_id", pad))


def write_ids(ids: TokenIds) -> dict[str, Any]:
    """The special tokens as published configs spell them."""
    eos: int | list[int] | None = list(ids.eos) if len(ids.eos) > 1 else ids.eos[0] if ids.eos else None
    return {"bos_token_id": ids.bos, "eos_token_id": eos, "pad_token_id": ids.pad}


def a(kind: type[T], part: object) -> T:
    """`part`, which must be a `kind` for a family to have words for it."""
    if not isinstance(part, kind):
        raise ClearheadError(f"this family's config has no words for {part}: it needs a {kind.__name__} there")
    return part
