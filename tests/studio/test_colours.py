"""The colours of the Studio, as the design asks: readable, apart for every kind of sight, and ramps that never turn."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from colorspacious import cspace_convert

TOKENS = Path(__file__).parents[2] / "frontend" / "src" / "styles" / "tokens.css"
ROLES = ("query", "key", "value", "position")
SIGHTS: dict[str, object] = {"normal": "sRGB1"} | {
    name: {"name": "sRGB1+CVD", "cvd_type": name, "severity": 100}
    for name in ("deuteranomaly", "protanomaly", "tritanomaly")
}
TEXT, CONTROL, APART = 4.5, 3.0, 15.0


def themes() -> dict[str, dict[str, str]]:
    """{theme: {token: value}}: what the style sheet says, the dark theme on top of the light one."""
    text = re.sub(r"/\*.*?\*/", "", TOKENS.read_text(), flags=re.S)
    text = re.sub(r"@media[^{]*\{(?:[^{}]*\{[^{}]*\})*[^{}]*\}", "", text)
    found: dict[str, dict[str, str]] = {"light": {}, "dark": {}}
    for selectors, body in re.findall(r"([^{}]+)\{([^{}]*)\}", text):
        theme = "dark" if "dark" in selectors else "light"
        found[theme] |= {name: value.strip() for name, value in re.findall(r"--([\w-]+):\s*([^;]+);", body)}
    return {"light": found["light"], "dark": found["light"] | found["dark"]}


def rgb(code: str) -> np.ndarray:
    return np.array([int(code[i : i + 2], 16) / 255 for i in (1, 3, 5)])


def luminance(code: str) -> float:
    channels = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in rgb(code)]
    return float(np.dot(channels, (0.2126, 0.7152, 0.0722)))


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def seen(codes: list[str], sight: str) -> np.ndarray:
    """In CAM02-UCS, where distances are as large as they look: (colours, J a b)."""
    return cspace_convert(
        np.clip(cspace_convert(np.array([rgb(c) for c in codes]), SIGHTS[sight], "sRGB1"), 0, 1), "sRGB1", "CAM02-UCS"
    )


THEMES = themes()


@pytest.mark.parametrize("theme", THEMES)
def test_text_and_roles_can_be_read_on_both_grounds(theme: str) -> None:
    tokens = THEMES[theme]
    for ground, name in itertools.product(("paper", "surface"), ("ink", "muted", *ROLES)):
        assert contrast(tokens[name], tokens[ground]) >= TEXT, f"{name} on {ground}"
    for ground, name in itertools.product(("paper", "surface"), ("control", "focus")):
        assert contrast(tokens[name], tokens[ground]) >= CONTROL, f"{name} on {ground}"
    assert contrast(tokens["on-role"], tokens["query"]) >= TEXT, "words on a filled button"


def test_contrast_is_wcags() -> None:
    assert contrast("#000000", "#FFFFFF") == pytest.approx(21)
    assert contrast("#777777", "#FFFFFF") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("sight", SIGHTS)
def test_roles_are_apart_for_every_sight(theme: str, sight: str) -> None:
    points = seen([THEMES[theme][role] for role in ROLES], sight)
    for (a, one), (b, other) in itertools.combinations(enumerate(points), 2):
        distance = float(np.linalg.norm(one - other))
        assert distance >= APART, f"{ROLES[a]} and {ROLES[b]} are {distance:.1f} apart"


def test_the_check_finds_roles_that_collapse() -> None:
    """The first guess of the design, which looks distinct and is not."""
    points = seen(["#0B62A8", "#00755E", "#8A3B8F"], "deuteranomaly")
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(points, 2)) < APART


def lightness(codes: list[str], sight: str, between: int = 16) -> np.ndarray:
    """Of the colours that the page makes of a ramp's stops: it mixes neighbours in sRGB."""
    stops = np.array([rgb(code) for code in codes])
    fine = np.linspace(0, len(stops) - 1, between * (len(stops) - 1) + 1)
    low = np.minimum(fine.astype(int), len(stops) - 2)
    mixed = stops[low] + (fine - low)[:, None] * (stops[low + 1] - stops[low])
    return cspace_convert(np.clip(cspace_convert(mixed, SIGHTS[sight], "sRGB1"), 0, 1), "sRGB1", "CAM02-UCS")[:, 0]


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("sight", SIGHTS)
def test_more_weight_is_always_more_ink(theme: str, sight: str) -> None:
    steps = np.diff(lightness(THEMES[theme]["ramp-ink"].split(), sight))
    assert np.all(steps < 0) if theme == "light" else np.all(steps > 0)


@pytest.mark.parametrize("theme", THEMES)
@pytest.mark.parametrize("sight", SIGHTS)
def test_the_diverging_ramp_goes_away_from_zero_on_both_sides(theme: str, sight: str) -> None:
    codes = THEMES[theme]["ramp-diverging"].split()
    half = len(codes) // 2
    toward, away = lightness(codes[:half], sight), lightness(codes[half:], sight)
    turn = 1 if theme == "light" else -1
    assert np.all(turn * np.diff(toward) > 0), "from the most negative to zero"
    assert np.all(turn * np.diff(away) < 0), "from zero to the most positive"
    assert abs(toward[-1] - away[0]) < 2, "both sides meet at zero"
    ends = seen([codes[0], codes[-1]], sight)
    assert np.linalg.norm(ends[0] - ends[1]) >= APART, "the two signs are apart"


@pytest.mark.parametrize("theme", THEMES)
def test_no_attention_is_paper(theme: str) -> None:
    tokens = THEMES[theme]
    nothing, paper = seen([tokens["ramp-ink"].split()[0], tokens["paper"]], "normal")
    assert np.linalg.norm(nothing - paper) < 10
