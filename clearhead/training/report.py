"""What is measured at the end of a run on texts: how far the model compresses those that were held out."""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Mapping
from typing import Any

from clearhead.model.transformer import Transformer
from clearhead.training.evaluate import evaluate


def report_on(model: Transformer, texts: Mapping[str, str]) -> dict[str, Any]:
    """The model's bits per byte on held-out texts, beside those of `xz -9`; nothing where no text is held out."""
    if not any(texts.values()):
        return {}
    return {**evaluate(model, texts).summary(), "xz_bits_per_byte": xz_bits_per_byte(texts.values())}


def xz_bits_per_byte(texts: Iterable[str]) -> float:
    """What `xz -9` makes of texts, each by itself."""
    sizes = [(len(data), len(lzma.compress(data, preset=9))) for data in (text.encode() for text in texts)]
    return 8 * sum(after for _, after in sizes) / sum(before for before, _ in sizes)
