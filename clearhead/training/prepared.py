"""What the data of a run comes to, whatever kind of data it is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearhead.inputs.tokenizer import Tokenizer
    from clearhead.model.transformer import Transformer
    from clearhead.training.data.batches import Batches


@dataclass(frozen=True)
class Prepared:
    """Batches to learn from, and how well a model does on what was held out."""

    batches: Batches
    measure: Callable[[Transformer], dict[str, Any]]
    """The numbers of a finished model, by name, on held-out data."""
    tokenizer: Tokenizer | None = None
    files: Mapping[str, bytes] = field(default_factory=dict)
    """What stands beside the weights so that pictures and sounds are read alike: preprocessor_config.json."""
    labels: tuple[str, ...] = ()
    """What labels are called, in the order of the head."""
