"""Pictures and sounds to begin with: made by rule, or files of the package. Nobody's picture is among them."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from clearhead.inputs.audio import read_sound

SIDE = 280
Points = tuple[tuple[float, float], ...]

# Outlines on a board of 28 by 28, in the manner of Fashion-MNIST: light clothes on black.
OUTLINES: dict[str, tuple[tuple[int, Points], ...]] = {
    "T-shirt": (
        (
            200,
            (
                (9, 3),
                (12, 5),
                (16, 5),
                (19, 3),
                (26, 8),
                (23, 13),
                (20, 11),
                (20, 26),
                (8, 26),
                (8, 11),
                (5, 13),
                (2, 8),
            ),
        ),
        (90, ((11, 4), (14, 7), (17, 4), (16, 5), (12, 5))),
    ),
    "trousers": (
        (190, ((9, 1), (19, 1), (20, 27), (15.5, 27), (14, 9), (12.5, 27), (8, 27))),
        (120, ((9, 1), (19, 1), (19.2, 3), (8.8, 3))),
    ),
    "ankle boot": (
        (210, ((14, 4), (24, 3), (25, 22), (3, 22), (2, 18), (10, 14))),
        (130, ((2, 22), (25, 22), (25, 25), (21, 25), (20, 23.5), (2, 24))),
    ),
    "bag": (
        (200, ((3, 11), (25, 11), (26, 25), (2, 25))),
        (120, ((3, 11), (25, 11), (24, 16), (4, 16))),
        (180, ((9, 11), (10, 5), (18, 5), (19, 11), (17.5, 11), (16.8, 6.5), (11.2, 6.5), (10.5, 11))),
    ),
}
PICTURES = (*OUTLINES, "landscape")
"""The last is in colour, for models that were taught with photographs."""
SPOKEN = {"365, spoken": "365.wav", "2017, spoken": "2017.wav"}
"""Files of the package."""
SOUNDS = ("rising tone", *SPOKEN)
"""A tone is no word to a model of speech."""


@cache
def sample_picture(name: str) -> Image.Image:
    """A picture in RGB."""
    if name == "landscape":
        return _landscape()
    picture = Image.new("L", (SIDE, SIDE), 0)
    pen = ImageDraw.Draw(picture)
    for shade, outline in OUTLINES[name]:
        pen.polygon([(x * SIDE / 28, y * SIDE / 28) for x, y in outline], fill=shade)
    return picture.convert("RGB")


def _landscape() -> Image.Image:
    """Sky, sun, hills, a house: a few areas that an eye tells apart."""
    height = np.linspace(0, 1, SIDE)[:, None, None]
    sky = (1 - height) * np.array([92, 158, 220]) + height * np.array([246, 236, 214])
    picture = Image.fromarray(np.broadcast_to(sky, (SIDE, SIDE, 3)).astype(np.uint8))
    pen = ImageDraw.Draw(picture)
    pen.ellipse((196, 28, 244, 76), fill=(252, 214, 92))
    pen.polygon([(0, 190), (70, 120), (150, 196), (220, 140), (280, 180), (280, 280), (0, 280)], fill=(84, 122, 92))
    pen.rectangle((0, 216, 280, 280), fill=(120, 156, 84))
    pen.rectangle((86, 168, 166, 236), fill=(214, 188, 160))
    pen.polygon([(76, 168), (126, 128), (176, 168)], fill=(160, 66, 48))
    pen.rectangle((116, 196, 138, 236), fill=(92, 62, 44))
    return picture


@cache
def sample_sound(name: str, rate: int) -> NDArray[np.float32]:
    """Samples from -1 to 1, `rate` a second."""
    if name in SPOKEN:
        return _spoken(SPOKEN[name], rate)
    time = np.arange(rate * 3 // 2) / rate
    phase = 2 * np.pi * (220 * time + 220 * time**2)
    swell = np.minimum(1, np.minimum(time, time[-1] - time) / 0.05)
    return np.asarray(0.4 * swell * np.sin(phase), np.float32)


def _spoken(file: str, rate: int) -> NDArray[np.float32]:
    samples, own = read_sound(str(files("clearhead").joinpath("assets", "sounds", file)))
    places = np.arange(int(len(samples) * rate / own)) * (own / rate)
    return np.asarray(np.interp(places, np.arange(len(samples)), samples[:, 0]), np.float32)
