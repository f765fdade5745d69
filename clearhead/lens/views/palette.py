"""Colours for weights between 0 and 1, on dark and on light ground."""

from __future__ import annotations

import math
from typing import Literal

Theme = Literal["dark", "light"]
RGB = tuple[int, int, int]

LEVELS = 40
"""Weights are drawn in this many steps: more can't be told apart, and a picture stays small."""

BAR: RGB = (232, 104, 92)
"""For bars: a colour that stands out on dark and on light ground alike."""

PAPER: dict[Theme, tuple[RGB, RGB, RGB]] = {
    "light": ((255, 254, 250), (29, 27, 34), (104, 101, 112)),
    "dark": ((16, 17, 23), (236, 234, 228), (154, 151, 165)),
}
"""Ground, ink and faint ink of a page."""

# Both run from the ground's own lightness to its opposite, through warm colours, with lightness rising or falling all
# the way, so that they also read in grey and to colour-blind eyes.
_STOPS: dict[Theme, tuple[RGB, ...]] = {
    "dark": ((23, 24, 33), (54, 30, 97), (127, 36, 122), (208, 64, 98), (248, 140, 84), (252, 229, 150)),
    "light": ((246, 246, 243), (253, 224, 178), (248, 164, 106), (224, 88, 92), (140, 36, 118), (54, 16, 92)),
}


def level(weight: float) -> int:
    """The step 0 .. LEVELS a weight is drawn in. Steps go by the square root, so that a weight of 0.02 still shows."""
    return round(math.sqrt(min(max(weight, 0.0), 1.0)) * LEVELS)


def colour(step: int, theme: Theme) -> RGB:
    """The colour of a step (see `level`): (red, green, blue), each 0 to 255."""
    stops = _STOPS[theme]
    place = min(max(step, 0), LEVELS) / LEVELS * (len(stops) - 1)
    low = min(int(place), len(stops) - 2)
    share = place - low
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(stops[low], stops[low + 1], strict=True))
    return red, green, blue


def ink(ground: RGB) -> RGB:
    """Near-black or near-white: whichever is easier to read on `ground`."""
    red, green, blue = ground
    bright = 0.299 * red + 0.587 * green + 0.114 * blue
    return (20, 18, 26) if bright > 140 else (240, 238, 232)


def hexadecimal(rgb: RGB) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)
