"""A pattern as a tiny picture, a pixel a cell."""

from __future__ import annotations

import io

from PIL import Image
from torch import Tensor

from clearhead.lens.views.palette import LEVELS, colour


def thumbnail(pattern_TS: Tensor) -> bytes:
    """The pattern (T, S) as a PNG of S x T pixels, on light ground."""
    steps_TS = (pattern_TS.clamp(0, 1).sqrt() * LEVELS).round().byte().cpu()
    image = Image.frombytes("P", (steps_TS.shape[1], steps_TS.shape[0]), bytes(steps_TS.flatten().tolist()))
    image.putpalette([part for step in range(LEVELS + 1) for part in colour(step, "light")])
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()
