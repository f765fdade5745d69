"""What each head of a model does."""

from __future__ import annotations

from clearhead.lens.heads.find import heads
from clearhead.lens.heads.table import Head, Heads

__all__ = ["Head", "Heads", "heads"]
