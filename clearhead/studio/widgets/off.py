"""What is switched off, as short text: "3.1, 2.mlp, 0.attn~". Links have the same (figures/explore/off.ts)."""

from __future__ import annotations

import re
from typing import Any

from clearhead.errors import UsageError

ONE = re.compile(
    r"(?P<encoder>e?)(?P<layer>\d{1,4})\.(?:(?P<crossed>x?)(?P<head>\d{1,4})|(?P<word>attn|mlp|cross|all))"
    r"(?::(?P<query>\d{1,6})>(?P<key>\d{1,6}))?(?P<mean>~?)"
)
PARTS = {"attn": "mixer", "mlp": "ffn", "cross": "cross", "all": "block"}


def ablations(text: str) -> list[dict[str, Any]]:
    """What `RunAsked.ablate` takes.

    Raises:
        UsageError: a part that can't be read.
    """
    return [_one(part.strip()) for part in text.split(",") if part.strip()]


def _one(text: str) -> dict[str, Any]:
    found = ONE.fullmatch(text)
    if found is None:
        raise UsageError(
            f"{text[:40]!r} names nothing to switch off: 3.1 is head 1 of layer 3, 3.mlp its MLP, 3.attn all its "
            "attention, 3.all all that it adds, and a ~ behind it takes the mean in place of zero"
        )
    part = PARTS[found["word"]] if found["word"] else "cross" if found["crossed"] else "mixer"
    return {
        "layer": int(found["layer"]),
        "part": part,
        "stack": "encoder" if found["encoder"] else "",
        "heads": [int(found["head"])] if found["head"] else [],
        "queries": [int(found["query"])] if found["query"] else [],
        "keys": [int(found["key"])] if found["key"] else [],
        "mode": "mean" if found["mean"] else "zero",
    }
