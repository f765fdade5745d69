"""One at a time draws from torch's own generator: two networks made at once would share out its numbers."""

from __future__ import annotations

import threading

DRAWING = threading.RLock()
"""Held where first weights are drawn after `torch.manual_seed`."""
