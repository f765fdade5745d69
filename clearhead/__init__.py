"""clearhead: the Transformer, whole and in plain sight.

`import clearhead` is instant: torch and everything else are imported when a name is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clearhead.checkpoints.load import load, save
    from clearhead.claims.ask import claim
    from clearhead.costs.cost import cost
    from clearhead.errors import ClearheadError
    from clearhead.generation import generate, stream
    from clearhead.generation.embed import embed
    from clearhead.lens.contacts import contacts
    from clearhead.lens.edit import edit
    from clearhead.lens.heads import heads
    from clearhead.lens.pruning.prune import prune
    from clearhead.lens.record import look
    from clearhead.model.transformer import Transformer
    from clearhead.training.evaluate import evaluate
    from clearhead.training.run import train

__version__ = "0.1.0"

_HOMES = {
    "load": "clearhead.checkpoints.load",
    "save": "clearhead.checkpoints.load",
    "generate": "clearhead.generation",
    "stream": "clearhead.generation",
    "embed": "clearhead.generation.embed",
    "claim": "clearhead.claims.ask",
    "contacts": "clearhead.lens.contacts",
    "cost": "clearhead.costs.cost",
    "look": "clearhead.lens.record",
    "edit": "clearhead.lens.edit",
    "heads": "clearhead.lens.heads",
    "prune": "clearhead.lens.pruning.prune",
    "train": "clearhead.training.run",
    "evaluate": "clearhead.training.evaluate",
    "Transformer": "clearhead.model.transformer",
    "ClearheadError": "clearhead.errors",
}
__all__ = [
    "ClearheadError",
    "Transformer",
    "claim",
    "contacts",
    "cost",
    "edit",
    "embed",
    "evaluate",
    "generate",
    "heads",
    "load",
    "look",
    "prune",
    "save",
    "stream",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'clearhead' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
