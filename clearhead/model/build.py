"""From a config to the model it describes."""

from __future__ import annotations

from typing import Any

from clearhead.config import TransformerConfig, TwoTowersConfig
from clearhead.model.transformer import Transformer


def build(config: TransformerConfig | TwoTowersConfig) -> Any:
    """The model of a config, with random weights."""
    if isinstance(config, TransformerConfig):
        return Transformer(config)
    from clearhead.model.towers import TwoTowers

    return TwoTowers(config)
