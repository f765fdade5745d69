"""A model so small that its costs can be worked out by hand.

One layer of width 8: two query heads on one key-value head of 4, a gated feed-forward of 16, ten tokens, an own head.

    q 8 x 8 = 64, k and v 4 x 8 = 32 each, o 8 x 8 = 64     192
    gate, up, down of 8 x 16 = 128 each                     384
    head 10 x 8                                              80    matrices: 656
    three norms of 8                                         24    read for every token: 680
    table of tokens 10 x 8                                   80    in all: 760
    state: keys and values of one head of 4                   8    numbers a token
"""

from __future__ import annotations

from typing import Any

from clearhead.costs import Counts, counts
from clearhead.costs.devices import Device
from clearhead.costs.source import read_config
from clearhead.families import FAMILIES

SIZES: dict[str, Any] = {
    "vocab_size": 10,
    "hidden_size": 8,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 8,
}
SLOW = Device(
    "slow", "slow", 2000, 1000.0, {"bfloat16": 10_000.0, "float32": 10_000.0}, "a test", reached=500.0, overhead=0.25
)
"""2,000 bytes, 1,000 of them and 10,000 operations a second: 10 operations a byte. Products go through 500 bytes,
and a step takes a quarter of a second beside."""


def config(family: str = "llama", **changes: Any) -> Any:
    """A family's config with other values."""
    return FAMILIES[family].read({"model_type": family, **changes}, family)


def tiny(**changes: Any) -> Counts:
    """The model above, with other values."""
    return counts(config(**{**SIZES, **changes}))


def published(name: str) -> Counts:
    """A model by the name of its shipped config."""
    return counts(read_config(name).config)
