"""Numbers, marks and statements as they are read."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

from clearhead.claims.claim import Mark
from clearhead.claims.verdict import FAILS, HOLDS, Estimate, Verdict
from clearhead.costs.units import digits

SIGNS = {HOLDS: "✓", FAILS: "✗"}
"""Beside the words, so that a verdict is told without colour."""


def sign(verdict: Verdict) -> str:
    return SIGNS.get(verdict, "?")


def statements(numbers: Iterable[int]) -> str:
    """S2, S9"""
    return ", ".join(f"S{number}" for number in numbers)


def measured(number: Estimate, unit: str = "") -> str:
    """6.61 (6.31 to 6.92) nats"""
    around = interval(number)
    return _with_unit(_number(number.mean) + (f" ({around})" if around else ""), unit)


def interval(number: Estimate) -> str:
    """6.31 to 6.92; nothing where there is none, or none that three digits show."""
    low, high = _number(number.low), _number(number.high)
    return "" if low == high == _number(number.mean) else f"{low} to {high}"


def mark(asked: Mark) -> str:
    """at least 0.5 nats"""
    low, high = (None if end is None else _end(end) for end in (asked.low, asked.high))
    if low is None:
        text = f"at most {high}"
    elif high is None:
        text = f"at least {low}"
    else:
        text = f"exactly {low}" if low == high else f"{low} to {high}"
    return _with_unit(text, asked.unit)


def _number(value: float) -> str:
    """`value` to three digits, and all of those before the point: 1,234, 12.3, 0.0123, 1.23e-5, 1.23e18."""
    is_plain = value == 0 or 1e-4 <= abs(value) < 1e15 or not math.isfinite(value)
    return digits(value) if is_plain else _power(f"{value:.3g}")


def _end(value: float) -> str:
    """A mark as it was set: 0.0001, 1e-12, 1,500."""
    return f"{value:,.0f}" if 1 <= abs(value) < 1e15 and value == round(value) else _power(f"{value:.6g}")


def _power(text: str) -> str:
    """1.23e-05 as 1.23e-5"""
    return re.sub("e([+-])0*", lambda found: f"e{found[1].strip('+')}", text)


def name(of: str) -> str:
    """A number's name as words."""
    return of.replace("_", " ")


def _with_unit(text: str, unit: str) -> str:
    return f"{text} {unit}".rstrip()
