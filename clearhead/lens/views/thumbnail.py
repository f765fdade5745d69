"""A pattern as a tiny picture, a pixel a cell."""

from __future__ import annotations

import io

from PIL import Image
from torch import Tensor
from torch.nn.functional import adaptive_max_pool2d

from clearhead.lens.views.palette import LEVELS, Theme, colour


def thumbnail(pattern_TS: Tensor) -> bytes:
    """The pattern (T, S) as a PNG of S x T pixels, on light ground."""
    return indexed(steps(pattern_TS), "light")


def steps(pattern_TS: Tensor, most: int | None = None) -> Tensor:
    """The step of the ramp each weight is drawn in (see `palette.level`), as bytes.

    most: a longer side is brought down to so many cells, each as strong as the strongest of those it stands for.
    """
    weights_TS = pattern_TS.detach().float().cpu().nan_to_num(0.0)
    if most is not None and max(weights_TS.shape) > most:
        height, width = (min(side, most) for side in weights_TS.shape)
        weights_TS = adaptive_max_pool2d(weights_TS[None, None], (height, width))[0, 0]
    return (weights_TS.clamp(0, 1).sqrt() * LEVELS).round().byte()


def indexed(steps_TS: Tensor, theme: Theme) -> bytes:
    """Steps of the ramp as a PNG, a pixel each."""
    image = Image.frombytes("P", (steps_TS.shape[1], steps_TS.shape[0]), steps_TS.contiguous().numpy().tobytes())
    image.putpalette([part for step in range(LEVELS + 1) for part in colour(step, theme)])
    out = io.BytesIO()
    image.save(out, "PNG")
    return out.getvalue()
