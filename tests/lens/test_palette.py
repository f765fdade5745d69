"""Colours for every eye: lightness alone tells a ramp, and hues side by side are told apart without red, green or blue
cones (Machado, Oliveira and Fernandes 2009, severity 1).
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from clearhead.lens.views.palette import HEADS, LEVELS, PAPER, THEMES, ink, tones

EYES = {
    "all cones": np.eye(3),
    "no red": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no green": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "no blue": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def linear(rgb: tuple[int, int, int]) -> np.ndarray:
    share = np.array(rgb) / 255
    return np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)


def lab(rgb: tuple[int, int, int], eye: str = "all cones") -> np.ndarray:
    """CIE L*a*b* (D65) of a colour as an eye sees it."""
    seen = np.clip(EYES[eye] @ linear(rgb), 0, 1)
    xyz = np.array(
        [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
    )
    t = xyz @ seen / [0.95047, 1.0, 1.08883]
    f = np.where(t > 216 / 24389, np.cbrt(t), (24389 / 27 * t + 16) / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def apart(one: tuple[int, int, int], other: tuple[int, int, int], eye: str) -> float:
    return float(np.linalg.norm(lab(one, eye) - lab(other, eye)))


def contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    low, high = sorted(float(linear(rgb) @ [0.2126, 0.7152, 0.0722]) for rgb in (one, other))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("theme", THEMES)
def test_weights_are_told_by_lightness_alone(theme, eye):
    lightness = [lab(tones(theme)[f"c{step}"], eye)[0] for step in range(LEVELS + 1)]
    assert lightness == sorted(lightness, reverse=theme == "light")
    assert abs(lightness[-1] - lightness[0]) > 70


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("theme", THEMES)
def test_signs_are_told_apart_and_size_by_lightness(theme, eye):
    shades = [tones(theme)[f"d{step}"] for step in range(LEVELS + 1)]
    middle = LEVELS // 2
    lightness = [lab(shade, eye)[0] for shade in shades]
    for side in (lightness[middle:], lightness[middle::-1]):
        assert side == sorted(side, reverse=theme == "light")
    # As far from zero on both sides: clearly another colour from the first steps on.
    assert min(apart(shades[middle - step], shades[middle + step], eye) for step in range(4, middle + 1)) > 20


@pytest.mark.parametrize("eye", EYES)
@pytest.mark.parametrize("theme", THEMES)
def test_heads_side_by_side_are_told_apart(theme, eye):
    for one, other in combinations(HEADS[theme], 2):
        assert apart(one, other, eye) > 25, (one, other)
    assert min(contrast(shade, PAPER[theme][0]) for shade in HEADS[theme]) > 3


@pytest.mark.parametrize("theme", THEMES)
def test_what_stands_on_a_colour_can_be_read(theme):
    assert min(contrast(ink(shade), shade) for shade in tones(theme).values()) > 4
    paper, plain, faint = PAPER[theme]
    assert contrast(plain, paper) > 12
    assert contrast(faint, paper) > 4.5
