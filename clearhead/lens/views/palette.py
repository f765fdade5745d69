"""Colours on dark and on light ground: for weights, for numbers with a sign, and for heads side by side.

A colour is named by its tone: "c0" to "c40" for weights from nothing to all, "d0" to "d40" for numbers from far below
zero ("d20" is zero) to far above, "h0" and on for heads, "bar", and "none" where there is no number.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Literal

Theme = Literal["dark", "light"]
RGB = tuple[int, int, int]

THEMES: tuple[Theme, Theme] = ("light", "dark")

LEVELS = 40
"""Weights are drawn in this many steps: more can't be told apart, and a picture stays small."""

BAR: RGB = (232, 104, 92)
"""For bars: a colour that stands out on dark and on light ground alike."""

PAPER: dict[Theme, tuple[RGB, RGB, RGB]] = {
    "light": ((255, 254, 250), (29, 27, 34), (104, 101, 112)),
    "dark": ((16, 17, 23), (236, 234, 228), (154, 151, 165)),
}
"""Ground, ink and faint ink of a page."""


def _colours(text: str) -> tuple[RGB, ...]:
    return tuple((int(word[:2], 16), int(word[2:4], 16), int(word[4:], 16)) for word in text.split())


# Both run from the ground's own lightness to its opposite, through warm colours, with lightness rising or falling all
# the way, so that they also read in grey and to colour-blind eyes.
_STOPS: dict[Theme, tuple[RGB, ...]] = {
    "dark": _colours("171821 361e61 7f247a d04062 f88c54 fce596"),
    "light": _colours("f6f6f3 fde0b2 f8a46a e0585c 8c2476 36105c"),
}
# Blue below zero and orange above: the pair that every kind of colour-blindness leaves apart. Lightness runs from the
# ground's at zero to its opposite at either end.
_SIGNED: dict[Theme, tuple[RGB, ...]] = {
    "dark": _colours("96d6ff 52a0f0 2260b0 1b3460 1c1e26 5c3218 aa581a ec8e3a ffce96"),
    "light": _colours("083c7a 2a68ac 629cd4 b0cfec f6f6f3 f0cca8 db965c b66024 7c3002"),
}
HEADS: dict[Theme, tuple[RGB, ...]] = {
    "light": _colours("008eac be7f27 2d544b 8520af 81895e 6327f9 19004b 791b00"),
    "dark": _colours("2adfff ff8310 539f65 b16498 c2ff85 7a2eff ffdccb c31100"),
}
"""For the lines of heads drawn together; heads beyond them begin again. Found by search: no two are nearer than 28 in
CIE L*a*b* to an eye without red, green or blue cones, nor fainter on the page than 3 to 1.
"""


def level(weight: float) -> int:
    """The step 0 .. LEVELS a weight is drawn in. Steps go by the square root, so that a weight of 0.02 still shows."""
    return round(math.sqrt(min(max(weight, 0.0), 1.0)) * LEVELS)


def colour(step: int, theme: Theme) -> RGB:
    """The colour of a step of weights (see `level`): (red, green, blue), each 0 to 255."""
    return _between(_STOPS[theme], step)


def _between(stops: tuple[RGB, ...], step: int) -> RGB:
    place = min(max(step, 0), LEVELS) / LEVELS * (len(stops) - 1)
    low = min(int(place), len(stops) - 2)
    share = place - low
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(stops[low], stops[low + 1], strict=True))
    return red, green, blue


@cache
def tones(theme: Theme) -> dict[str, RGB]:
    """Every tone and its colour."""
    ramp = {f"c{step}": colour(step, theme) for step in range(LEVELS + 1)}
    signed = {f"d{step}": _between(_SIGNED[theme], step) for step in range(LEVELS + 1)}
    heads = {f"h{head}": shade for head, shade in enumerate(HEADS[theme])}
    return {**ramp, **signed, **heads, "bar": BAR, "none": PAPER[theme][0]}


def of_head(head: int) -> str:
    """The tone of a head's lines."""
    return f"h{head % len(HEADS['light'])}"


def ink(ground: RGB) -> RGB:
    """Near-black or near-white: whichever has the larger contrast to `ground` (by its relative luminance)."""
    red, green, blue = ((part / 255) ** 2.2 for part in ground)
    return (8, 7, 12) if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.18 else (250, 249, 245)


def hexadecimal(rgb: RGB) -> str:
    return "#{:02x}{:02x}{:02x}".format(*rgb)
