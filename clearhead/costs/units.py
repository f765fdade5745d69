"""Costs in words: sizes, times, counts and money, with the few digits that matter."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence

_BYTES = ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_COUNTS = ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k"))
_FLOPS = ((1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_RATES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_SECONDS = ((86400 * 365.25, "years"), (86400, "days"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "us"))


def digits(value: float, n: int = 3) -> str:
    """`value` to `n` digits, those before the point all shown: 1,234, 12.3, 0.0123."""
    if not math.isfinite(value):
        return "no end" if value > 0 else str(value)
    if value == 0 or abs(value) >= 10 ** (n - 1):
        return f"{value:,.0f}"
    places = n - 1 - math.floor(math.log10(abs(value)))
    text = f"{value:.{places}f}" if places < 9 else f"{value:.{n - 1}e}"
    return text.rstrip("0").rstrip(".") if "." in text and "e" not in text else text


def in_bytes(value: float) -> str:
    """2684354560 as 2.5 GiB."""
    size, unit = next((row for row in _BYTES if value >= row[0]), (1, "B"))
    return f"{digits(value / size)} {unit}"


def in_counts(value: float) -> str:
    """70553706496 as 70.6 B; beyond 1e15, as 1.23e+20."""
    if value >= 1e15:
        return f"{value:.2e}".replace("e+", "e")
    size, unit = next((row for row in _COUNTS if value >= row[0]), (1, ""))
    return f"{digits(value / size)} {unit}".strip()


def in_flops(value: float) -> str:
    """1.31e15 as 1.31 PFLOP; beyond what has a name, as 3.79e25 FLOP."""
    if value >= 1e21:
        return f"{value:.2e} FLOP".replace("e+", "e")
    size, unit = next((row for row in _FLOPS if value >= row[0]), (1, ""))
    return f"{digits(value / size)} {unit}FLOP"


def in_rate(value: float) -> str:
    """Bytes a second by powers of ten, as makers of memory say it: 3.35e12 as 3.35 TB/s."""
    size, unit = next((row for row in _RATES if value >= row[0]), (1, ""))
    return f"{digits(value / size)} {unit}B/s"


def in_seconds(value: float) -> str:
    """0.0421 as 42.1 ms, 7200 as 2 h."""
    if not math.isfinite(value):
        return digits(value)
    size, unit = next((row for row in _SECONDS if value >= row[0]), _SECONDS[-1])
    return f"{digits(value / size)} {unit}"


def in_dollars(value: float) -> str:
    """1234.5 as $1,234, and 0.0123 as $0.0123."""
    return f"${digits(value)}"


def columns(rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> Iterator[str]:
    """Rows with their columns aligned; those in `right` to the right. Wide ones are left to the terminal to wrap."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        yield "  ".join(cells).rstrip()
