"""What products are computed in."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def precision(dtype: str, device: torch.device) -> AbstractContextManager[Any]:
    """Within it, products are computed in this type, by its name; weights and sums stay as they are."""
    return nullcontext() if dtype == "float32" else torch.autocast(device.type, dtype=getattr(torch, dtype))
