"""Pictures of clothes drawn by rule, 28 x 28 greys, pale on black as the data set has them: it need not be there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

SIZE, FINE = 28, 16
"""Pixels of a side; each is drawn as so many squared."""

Shape = tuple[int, Sequence[tuple[float, float]]]
"""A grey, and the corners of a polygon in pixels."""

SHAPES: dict[str, list[Shape]] = {
    "trousers": [
        (200, [(9, 1), (19, 1), (20.5, 12), (20, 27), (15.6, 27), (14, 9), (12.4, 27), (8, 27), (7.5, 12)]),
        (150, [(9, 1), (19, 1), (19.2, 3), (8.8, 3)]),
    ],
    "T-shirt": [
        (
            190,
            [
                (9, 3),
                (11, 2.4),
                (14, 4),
                (17, 2.4),
                (19, 3),
                (26, 8),
                (23.5, 13),
                (20, 11),
                (20, 26),
                (8, 26),
                (8, 11),
                (4.5, 13),
                (2, 8),
            ],
        ),
        (120, [(11, 2.4), (14, 5), (17, 2.4), (14, 4)]),
    ],
    "dress": [
        (185, [(10.5, 1), (12, 5), (16, 5), (17.5, 1), (18.5, 2), (17.4, 10), (21, 27), (7, 27), (10.6, 10), (9.5, 2)]),
        (130, [(10.6, 10), (17.4, 10), (17.6, 11.4), (10.4, 11.4)]),
    ],
    "bag": [
        (
            120,
            [
                (9, 12),
                (10, 5),
                (12, 3),
                (16, 3),
                (18, 5),
                (19, 12),
                (17.6, 12),
                (16.8, 6),
                (15.6, 4.6),
                (12.4, 4.6),
                (11.2, 6),
                (10.4, 12),
            ],
        ),
        (205, [(2.5, 11), (25.5, 11), (26.5, 25), (1.5, 25)]),
        (150, [(2.5, 11), (25.5, 11), (25.8, 14.5), (2.2, 14.5)]),
    ],
    "sneaker": [
        (190, [(1, 16), (4, 13.5), (9, 15), (14, 11.5), (17, 10.5), (26, 13), (27, 18), (27, 20), (1, 20)]),
        (240, [(1, 19), (27, 19), (27, 21), (1, 21)]),
    ],
    "ankle boot": [
        (190, [(15, 3), (25, 2.5), (26, 14), (27, 20), (27, 24), (2, 24), (1.5, 20), (6, 17), (11, 15.5), (14.5, 12)]),
        (110, [(2, 22.6), (17, 22.6), (19, 21), (26.8, 21), (27, 25), (20, 25), (19.5, 24), (2, 24)]),
    ],
}


def drawn(name: str) -> NDArray[np.uint8]:
    """(28, 28): one of `SHAPES`."""
    image = Image.new("L", (SIZE * FINE, SIZE * FINE), 0)
    pen = ImageDraw.Draw(image)
    for grey, corners in SHAPES[name]:
        pen.polygon([(x * FINE, y * FINE) for x, y in corners], fill=grey)
    return np.asarray(image.resize((SIZE, SIZE), Image.Resampling.BOX), dtype=np.uint8)
